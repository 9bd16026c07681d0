# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Chooses experts, and sorts the pairs of a token and an expert by expert. Nothing waits for the device.

T tokens, E experts, K chosen for a token, P = T K pairs: pair t K + k is the k-th expert of token t.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.moe.weights import Routing

__all__ = ["Order", "route", "sort_pairs"]

_PAIRS = 1024  # pairs that a program of the sort looks at together


class Order(NamedTuple):
    """Pairs by expert, int32: `pairs_P` sorted, and `starts_E1`, the place of each expert's first pair, and P.

    `chosen` is K.
    """

    pairs_P: Tensor
    starts_E1: Tensor
    chosen: int


def route(logits_TE: Tensor, count: int) -> Routing:
    """Compute `reference.route`; rows of logits may be strided."""
    tokens, experts = logits_TE.shape
    experts_TK = torch.empty((tokens, count), dtype=torch.int32, device=logits_TE.device)
    weights_TK = torch.empty((tokens, count), dtype=logits_TE.dtype, device=logits_TE.device)
    if tokens == 0:
        return Routing(experts_TK, weights_TK)
    kernel: Any = _route
    kernel[(tokens,)](
        logits_TE,
        experts_TK,
        weights_TK,
        logits_TE.stride(0),
        E=experts,
        E_BLOCK=triton.next_power_of_2(experts),
        K=count,
        K_BLOCK=triton.next_power_of_2(count),
        num_warps=1,
        **early.options(logits_TE.device, tokens),
    )
    return Routing(experts_TK, weights_TK)


def sort_pairs(experts_TK: Tensor, experts: int) -> Order:
    """Sort the pairs by expert; pairs of one expert keep their order."""
    pairs = experts_TK.numel()
    order = Order(
        torch.empty(pairs, dtype=torch.int32, device=experts_TK.device),
        torch.empty(experts + 1, dtype=torch.int32, device=experts_TK.device),
        experts_TK.shape[1],
    )
    kernel: Any = _sort
    kernel[(experts,)](
        experts_TK,
        order.pairs_P,
        order.starts_E1,
        pairs,
        E=experts,
        BLOCK=min(_PAIRS, max(16, triton.next_power_of_2(pairs))),
        num_warps=4,
        **early.options(experts_TK.device, experts_TK.shape[0]),
    )
    return order


@triton.jit
def _route(
    logits_ptr,
    experts_ptr,
    weights_ptr,
    row_stride,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, E_BLOCK)
    rank = tl.arange(0, K_BLOCK)
    early.wait(EARLY)
    left = tl.load(logits_ptr + row * row_stride + expert, mask=expert < E, other=float("-inf")).to(tl.float32)
    left = tl.where(left != left, -3.0e38, left)  # a NaN must not become an index
    chosen = tl.zeros((K_BLOCK,), dtype=tl.int32)
    values = tl.full((K_BLOCK,), float("-inf"), dtype=tl.float32)
    free = expert < E
    for place in tl.static_range(K):
        best = tl.max(tl.where(free, left, float("-inf")), axis=0)
        index = tl.min(tl.where(free & (left == best), expert, E_BLOCK), axis=0)
        chosen = tl.where(rank == place, index, chosen)
        values = tl.where(rank == place, best, values)
        free = free & (expert != index)
    powers = tl.where(rank < K, tl.exp(values - tl.max(values, axis=0)), 0.0)
    weights = powers / tl.sum(powers, axis=0)
    tl.store(experts_ptr + row * K + rank, chosen, mask=rank < K)
    tl.store(weights_ptr + row * K + rank, weights.to(weights_ptr.dtype.element_ty), mask=rank < K)


@triton.jit
def _sort(experts_ptr, pairs_ptr, starts_ptr, pairs, E: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    # a program takes one expert: it counts the pairs of the experts before it, then lists its own after them
    early.let_next_start(EARLY)
    expert = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    early.wait(EARLY)
    before = 0
    for first in range(0, pairs, BLOCK):
        found = tl.load(experts_ptr + first + lane, mask=first + lane < pairs, other=E)
        before += tl.sum((found < expert).to(tl.int32), axis=0)
    tl.store(starts_ptr + expert, before)
    if expert == E - 1:
        tl.store(starts_ptr + E, pairs)
    for first in range(0, pairs, BLOCK):
        found = tl.load(experts_ptr + first + lane, mask=first + lane < pairs, other=E)
        own = found == expert
        place = before + tl.cumsum(own.to(tl.int32), axis=0) - 1
        tl.store(pairs_ptr + place, first + lane, mask=own)
        before += tl.sum(own.to(tl.int32), axis=0)
