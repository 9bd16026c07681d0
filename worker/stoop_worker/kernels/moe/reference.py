"""A mixture of experts. T tokens, E experts, K chosen for a token, C model dim, F inner dim of an expert.

    u = W1[e] x,  (a, g) = halves of u,  y_e = W2[e] (gelu(a) * (g + 1)),  out = sum over the chosen of weight_e * y_e

GELU is the exact one, by erf.
"""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.moe.weights import ExpertAdapter, ExpertLinear, ExpertOutputs, Routing

__all__ = ["combine", "expert_outputs", "gated_gelu", "mixture", "route"]


def route(logits_TE: Tensor, count: int) -> Routing:
    """Choose the `count` largest logits of each token, the lowest expert first if they tie; weigh by their softmax.

    The softmax is over the chosen alone, in float32 (float64 for float64), rounded to the dtype of the logits.
    """
    precise_TE = logits_TE.to(torch.promote_types(logits_TE.dtype, torch.float32))
    values_TE, experts_TE = precise_TE.sort(dim=-1, descending=True, stable=True)
    weights_TK = values_TE[:, :count].softmax(dim=-1)
    return Routing(experts_TE[:, :count].int(), weights_TK.to(logits_TE.dtype))


def mixture(
    x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, adapter: ExpertAdapter | None = None
) -> Tensor:
    """Return the weighted sum of the chosen experts' outputs, summed in float32 (float64 for float64).

    `up` is (E, 2 F, C): the first F rows make a, the others g. `down` is (E, C, F). An `adapter` corrects both
    products of each token.
    """
    precise = torch.promote_types(x_TC.dtype, torch.float32)
    out_TC = torch.zeros_like(x_TC, dtype=precise)
    for expert in torch.unique(routing.experts_TK).tolist():
        rows, ranks = (routing.experts_TK == expert).nonzero(as_tuple=True)
        found_RC = _output(x_TC[rows], rows, expert, up, down, adapter).to(precise)
        out_TC.index_add_(0, rows, found_RC * routing.weights_TK[rows, ranks, None].to(precise))
    return out_TC.to(x_TC.dtype)


def expert_outputs(
    x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, adapter: ExpertAdapter | None = None
) -> ExpertOutputs:
    """Return the outputs of the chosen experts, not yet weighted, in x's dtype; `combine` adds them up."""
    found_TKC = x_TC.new_empty((*routing.experts_TK.shape, down.weight_EOI.shape[1]))
    for expert in torch.unique(routing.experts_TK).tolist():
        rows, ranks = (routing.experts_TK == expert).nonzero(as_tuple=True)
        found_TKC[rows, ranks] = _output(x_TC[rows], rows, expert, up, down, adapter)
    return ExpertOutputs(found_TKC.flatten(0, 1), routing.weights_TK)


def combine(outputs: ExpertOutputs) -> Tensor:
    """Return the weighted sums of the tokens' experts (T, C), in at least float32."""
    weights_TK1 = outputs.weights_TK[..., None]
    precise = torch.promote_types(outputs.found_PC.dtype, torch.float32)
    found_TKC = outputs.found_PC.view(*outputs.weights_TK.shape, -1)
    return (found_TKC.to(precise) * weights_TK1.to(precise)).sum(dim=1)


def gated_gelu(u_RN: Tensor) -> Tensor:
    """Return gelu(a) * (g + 1) for the halves a and g, rounded once."""
    a_RF, g_RF = u_RN.to(torch.promote_types(u_RN.dtype, torch.float32)).chunk(2, dim=-1)
    return (functional.gelu(a_RF) * (g_RF + 1)).to(u_RN.dtype)


def _own_columns(adapter: ExpertAdapter, rows_R: Tensor) -> Tensor:
    """Return 1 in the columns of each row's adapter, (R, K)."""
    assert adapter.numbers_T is not None, "a mixture needs to know each token's adapter"
    numbers_R1 = adapter.numbers_T[rows_R, None]
    owners_K = torch.arange(adapter.up_a_EKC.shape[1], device=rows_R.device) // adapter.rank
    return ((owners_K == numbers_R1) & (numbers_R1 > 0)).to(adapter.up_a_EKC.dtype)


def _output(
    x_RC: Tensor, rows_R: Tensor, expert: int, up: ExpertLinear, down: ExpertLinear, adapter: ExpertAdapter | None
) -> Tensor:
    """Return an expert's outputs for the tokens `rows_R`, whose values are x."""
    if adapter is None:
        return _product(gated_gelu(_product(x_RC, up, expert)), down, expert)
    mask_RK = _own_columns(adapter, rows_R)
    thin_RK = functional.linear(x_RC, adapter.up_a_EKC[expert]) * mask_RK
    inner_RF = gated_gelu(_product(x_RC, up, expert) + thin_RK @ adapter.up_b_EKN[expert])
    thin_RK = functional.linear(inner_RF, adapter.down_a_EKF[expert]) * mask_RK
    return _product(inner_RF, down, expert) + thin_RK @ adapter.down_b_EKC[expert]


def _product(x_RI: Tensor, weights: ExpertLinear, expert: int) -> Tensor:
    weight_OI = weights.weight_EOI[expert]
    if weights.scales_EO is not None:
        weight_OI = weight_OI.float() * weights.scales_EO[expert, :, None]
    return functional.linear(x_RI, weight_OI.to(x_RI.dtype))
