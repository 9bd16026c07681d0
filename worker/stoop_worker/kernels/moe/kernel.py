# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The mixture of experts in four launches: sort the pairs, two products over all experts, and the weighted sum.

T tokens, K experts chosen for a token, P = T K pairs, C model dim.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.moe.products import Cut, Cuts, computes_in_fp8, cuts_for, down_product, up_product
from stoop_worker.kernels.moe.routing import route, sort_pairs
from stoop_worker.kernels.moe.weights import ExpertLinear, ExpertOutputs, Routing

__all__ = ["combine", "expert_outputs", "mixture", "route"]

_BLOCK = 1024


def mixture(x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, *, cut: Cut | None = None) -> Tensor:
    """Compute `reference.mixture`; rows of x may be strided, their columns are contiguous."""
    if x_TC.shape[0] == 0:
        return torch.empty_like(x_TC)
    return combine(expert_outputs(x_TC, routing, up, down, cut=cut))


def expert_outputs(
    x_TC: Tensor, routing: Routing, up: ExpertLinear, down: ExpertLinear, *, cut: Cut | None = None
) -> ExpertOutputs:
    """Compute `reference.expert_outputs` for at least one token."""
    pairs, experts = routing.experts_TK.numel(), up.weight_EOI.shape[0]
    fp8 = computes_in_fp8(pairs, up)
    cuts = cuts_for(pairs, experts, fp8=fp8) if cut is None else Cuts(cut, cut)
    order = sort_pairs(routing.experts_TK, experts)
    inner_PF = up_product(x_TC, order, up, cuts.up, fp8=fp8)
    return ExpertOutputs(down_product(inner_PF, order, down, cuts.down, fp8=fp8), routing.weights_TK)


def combine(outputs: ExpertOutputs) -> Tensor:
    """Return the weighted sum of each token's pairs, summed in float32 in the order of its experts."""
    found_PC, weights_TK = outputs
    (tokens, chosen), width = weights_TK.shape, found_PC.shape[1]
    out_TC = torch.empty((tokens, width), dtype=found_PC.dtype, device=found_PC.device)
    kernel: Any = _combine
    kernel[(tokens, triton.cdiv(width, _BLOCK))](
        found_PC,
        weights_TK,
        out_TC,
        C=width,
        K=chosen,
        BLOCK=min(_BLOCK, triton.next_power_of_2(width)),
        num_warps=4,
        **early.options(found_PC.device, tokens),
    )
    return out_TC


@triton.jit
def _combine(
    found_ptr, weights_ptr, out_ptr, C: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr
):
    early.let_next_start(EARLY)
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    early.wait(EARLY)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in tl.static_range(K):
        weight = tl.load(weights_ptr + token * K + k).to(tl.float32)
        found = tl.load(found_ptr + (token * K + k) * C + column, mask=column < C, other=0.0)
        total += weight * found.to(tl.float32)
    tl.store(out_ptr + token * C + column, total.to(out_ptr.dtype.element_ty), mask=column < C)
