# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The mixture of experts in four launches: sort the pairs, two products over all experts, and the weighted sum.

Few tokens need no sort. Each launch has a name in the profiler's traces. T tokens, E experts, K chosen for a token,
P = T K pairs, C model dim.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.moe.corrections import Owners, correction
from stoop_worker.kernels.moe.products import (
    Cut,
    Cuts,
    computes_in_fp8,
    cuts_for,
    down_product,
    up_product,
)
from stoop_worker.kernels.moe.routing import route, sort_pairs
from stoop_worker.kernels.moe.tiles import MOST_UNSORTED, Tiles, chosen, sorted_pairs
from stoop_worker.kernels.moe.weights import ExpertAdapter, ExpertLinear, ExpertOutputs, Routing
from stoop_worker.kernels.profiling import named_part

__all__ = ["combine", "expert_outputs", "mixture", "route"]

_BLOCK = 1024


def mixture(
    x_TC: Tensor,
    routing: Routing,
    up: ExpertLinear,
    down: ExpertLinear,
    adapter: ExpertAdapter | None = None,
    *,
    cut: Cut | None = None,
) -> Tensor:
    """Compute `reference.mixture`; rows of x may be strided, their columns are contiguous."""
    if x_TC.shape[0] == 0:
        return torch.empty_like(x_TC)
    tiles = _tiles(routing.experts_TK, up, most_unsorted=MOST_UNSORTED)
    found_PC = _outputs(x_TC, tiles, up, down, adapter, cut)
    return combine(ExpertOutputs(found_PC, routing.weights_TK))


def expert_outputs(
    x_TC: Tensor,
    routing: Routing,
    up: ExpertLinear,
    down: ExpertLinear,
    adapter: ExpertAdapter | None = None,
    *,
    most_unsorted: int = MOST_UNSORTED,
) -> ExpertOutputs:
    """Compute `reference.expert_outputs` for at least one token; rows of x may be strided.

    The pairs of more than `most_unsorted` tokens are sorted; it is at most `MOST_UNSORTED`.
    """
    tiles = _tiles(routing.experts_TK, up, most_unsorted=most_unsorted)
    return ExpertOutputs(_outputs(x_TC, tiles, up, down, adapter), routing.weights_TK)


def _tiles(experts_TK: Tensor, up: ExpertLinear, *, most_unsorted: int) -> Tiles:
    if len(experts_TK) <= most_unsorted:
        assert most_unsorted <= MOST_UNSORTED, "an expert's tokens must fit into one tile"
        return chosen(experts_TK)
    with named_part("stoop.experts.sort"):
        return sorted_pairs(sort_pairs(experts_TK, up.weight_EOI.shape[0]), experts_TK)


def _outputs(
    x_TC: Tensor,
    tiles: Tiles,
    up: ExpertLinear,
    down: ExpertLinear,
    adapter: ExpertAdapter | None,
    cut: Cut | None = None,
) -> Tensor:
    fp8 = computes_in_fp8(tiles.pairs, up)
    cuts = cuts_for(tiles.pairs, up.weight_EOI.shape[0], fp8=fp8) if cut is None else Cuts(cut, cut)
    if adapter is None:
        with named_part("stoop.experts.up"):
            inner_PF = up_product(x_TC, tiles, up, cuts.up, fp8=fp8)
        with named_part("stoop.experts.down"):
            return down_product(inner_PF, tiles, down, cuts.down, fp8=fp8)
    assert adapter.numbers_T is not None, "a mixture needs to know each token's adapter"
    owners = Owners(adapter.numbers_T, adapter.rank)
    with named_part("stoop.experts.up"):
        corrected = correction(x_TC, tiles, adapter.up_a_EKC, adapter.up_b_EKN, owners, of_tokens=True)
        inner_PF = up_product(x_TC, tiles, up, cuts.up, fp8=fp8, corrected=corrected)
    with named_part("stoop.experts.down"):
        corrected = correction(inner_PF, tiles, adapter.down_a_EKF, adapter.down_b_EKC, owners, of_tokens=False)
        return down_product(inner_PF, tiles, down, cuts.down, fp8=fp8, corrected=corrected)


def combine(outputs: ExpertOutputs) -> Tensor:
    """Return the weighted sum of each token's pairs, summed in float32 in the order of its experts."""
    with named_part("stoop.experts.sum"):
        return _combined(outputs)


def _combined(outputs: ExpertOutputs) -> Tensor:
    found_PC, weights_TK = outputs.found_PC, outputs.weights_TK
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
