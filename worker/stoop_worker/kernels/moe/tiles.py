# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The tile of each program of an expert product: its expert, and the pairs of a token and that expert.

Many pairs are sorted first. With up to 16 tokens an expert has at most one tile, whose rows are the tokens, so a
program finds its pairs among the choices. With one token it finds its expert from the logits, and nothing runs before.

T tokens, E experts, K chosen for a token, P = T K pairs.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.moe.routing import Order

__all__ = ["CHOSEN", "MOST_UNSORTED", "RANKED", "SORTED", "Tiles", "chosen", "ranked", "sorted_pairs", "tile_of"]

SORTED = tl.constexpr(0)
CHOSEN = tl.constexpr(1)
RANKED = tl.constexpr(2)

MOST_UNSORTED = 16
"""Tokens whose pairs with one expert always fit into one tile."""


class Tiles(NamedTuple):
    """`first` and `second` hold pairs and starts (SORTED), choices (CHOSEN), or logits and weights to fill (RANKED)."""

    kind: int
    first: Tensor
    second: Tensor
    pairs: int
    chosen: int

    def most(self, rows: int, experts: int) -> int:
        """Return the most tiles of `rows` pairs that there can be."""
        if self.kind == SORTED.value:
            return self.pairs // rows + min(self.pairs, experts)
        return min(self.pairs, experts)

    def constants(self, experts: int) -> dict[str, int]:
        """Return the constants of `tile_of`."""
        return {
            "P": 0 if self.kind == SORTED.value else self.pairs,  # the sorted are the same kernel for any number
            "K": self.chosen,
            "K_BLOCK": triton.next_power_of_2(self.chosen),
            "E": experts,
            "E_BLOCK": triton.next_power_of_2(experts),
            "KIND": self.kind,
        }


def sorted_pairs(order: Order) -> Tiles:
    """Return the tiles of sorted pairs."""
    return Tiles(SORTED.value, order.pairs_P, order.starts_E1, len(order.pairs_P), order.chosen)


def chosen(experts_TK: Tensor) -> Tiles:
    """Return the tiles of at most `MOST_UNSORTED` tokens, by their choices."""
    return Tiles(CHOSEN.value, experts_TK, experts_TK, experts_TK.numel(), experts_TK.shape[1])


def ranked(logits_1E: Tensor, count: int) -> Tiles:
    """Return the tiles of one token, by its logits; `second` takes the weights of its `count` experts (1, K)."""
    weights_1K = torch.empty((1, count), dtype=logits_1E.dtype, device=logits_1E.device)
    return Tiles(RANKED.value, logits_1E, weights_1K, count, count)


@triton.jit
def tile_of(
    first_ptr,
    second_ptr,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    KIND: tl.constexpr,
    WEIGH: tl.constexpr,
):
    """Return the expert (E if there is no tile), its pairs, the rows of their inner values, and which of them exist."""
    if KIND == SORTED:
        expert, start, last = _next_sorted(second_ptr, E, E_BLOCK, PAIRS)
        inner = start + tl.arange(0, PAIRS)
        there = inner < last
        pair = tl.load(first_ptr + inner, mask=there, other=0).to(tl.int64)
    else:
        if KIND == CHOSEN:
            expert, pair = _among_chosen(first_ptr, P, K, K_BLOCK, E, PAIRS)
        else:
            expert, pair = _by_rank(first_ptr, second_ptr, K, E, E_BLOCK, PAIRS, WEIGH)
        there = pair >= 0
        pair = tl.maximum(pair, 0).to(tl.int64)
        inner = pair
    return expert, pair, inner.to(tl.int64), there


@triton.jit
def _next_sorted(starts_ptr, E: tl.constexpr, E_BLOCK: tl.constexpr, PAIRS: tl.constexpr):
    """Return this program's expert and its places [first, last)."""
    tile = tl.program_id(1)
    expert = tl.arange(0, E_BLOCK)
    start = tl.load(starts_ptr + expert, mask=expert < E, other=0)
    end = tl.load(starts_ptr + expert + 1, mask=expert < E, other=0)
    tiles = tl.cdiv(end - start, PAIRS)
    upto = tl.cumsum(tiles, axis=0)
    mine = tl.sum(((upto <= tile) & (expert < E)).to(tl.int32), axis=0)
    here = expert == mine
    first = tl.sum(tl.where(here, start + (tile - upto + tiles) * PAIRS, 0), axis=0)
    last = tl.sum(tl.where(here, end, 0), axis=0)
    return mine, first, last


@triton.jit
def _among_chosen(
    experts_ptr, P: tl.constexpr, K: tl.constexpr, K_BLOCK: tl.constexpr, E: tl.constexpr, PAIRS: tl.constexpr
):
    """Return this program's expert, and each token's pair with it or -1.

    The programs take the experts one by one, or the pairs if there are fewer: the first pair of an expert takes all.
    """
    mine = tl.program_id(1)
    place = tl.arange(0, PAIRS)[:, None] * K + tl.arange(0, K_BLOCK)[None, :]
    real = (tl.arange(0, K_BLOCK)[None, :] < K) & (place < P)
    # bypass the nearest cache: a program may read this before the kernel ahead of it has ended
    found = tl.load(experts_ptr + place, mask=real, other=-1, cache_modifier=".cg")
    expert = mine
    if P < E:
        expert = tl.load(experts_ptr + mine, cache_modifier=".cg")
    pair = tl.max(tl.where(found == expert, place, -1), axis=1)
    first = tl.min(tl.where(pair >= 0, pair, P), axis=0)
    last = mine if P < E else P - 1
    return tl.where(first <= last, expert, E), pair


@triton.jit
def _by_rank(
    logits_ptr,
    weights_ptr,
    K: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    WEIGH: tl.constexpr,
):
    """Return the expert whose rank is this program's number, and that number as the pair of the first row.

    An expert's rank is the number of larger logits, or equal ones of lower experts. With WEIGH the first program of
    each rank stores its weight.
    """
    mine = tl.program_id(1)
    expert = tl.arange(0, E_BLOCK)
    own, other = _logits(logits_ptr, expert, E), _logits(logits_ptr, expert, E)
    above = (other[None, :] > own[:, None]) | ((other[None, :] == own[:, None]) & (expert[None, :] < expert[:, None]))
    rank = tl.sum(above.to(tl.int32), axis=1)
    chosen = tl.sum(tl.where(rank == mine, expert, 0), axis=0)
    if WEIGH:
        powers = tl.where(rank < K, tl.exp(own - tl.max(own, axis=0)), 0.0)
        weight = tl.sum(tl.where(rank == mine, powers, 0.0), axis=0) / tl.sum(powers, axis=0)
        tl.store(weights_ptr + mine, weight.to(weights_ptr.dtype.element_ty), mask=tl.program_id(0) == 0)
    return chosen, tl.where(tl.arange(0, PAIRS) == 0, mine, -1)


@triton.jit
def _logits(logits_ptr, expert, E: tl.constexpr):
    # bypass the nearest cache, as above
    logits = tl.load(logits_ptr + expert, mask=expert < E, other=float("-inf"), cache_modifier=".cg").to(tl.float32)
    return tl.where(logits != logits, -3.0e38, logits)  # a NaN must not hide an expert
