# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The tile of each program of an expert product: its expert, and the pairs of a token and that expert.

Many pairs are sorted first. With up to 16 tokens an expert has at most one tile, whose rows are the tokens, so a
program finds its pairs among the choices.

T tokens, E experts, K chosen for a token, P = T K pairs.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.moe.routing import Order

__all__ = ["MOST_UNSORTED", "Tiles", "chosen", "sorted_pairs", "tile_of"]

MOST_UNSORTED = 16
"""Tokens whose pairs with one expert always fit into one tile."""


class Tiles(NamedTuple):
    """The sorted pairs, or the experts of each pair, in `listed`; `starts` belongs to sorted pairs.

    `experts_TK` are the experts of each pair.
    """

    listed: Tensor
    starts: Tensor
    experts_TK: Tensor
    pairs: int
    chosen: int
    in_order: bool

    def most(self, rows: int, experts: int) -> int:
        """Return the largest possible number of tiles of `rows` pairs."""
        if self.in_order:
            return self.pairs // rows + min(self.pairs, experts)
        return min(self.pairs, experts)

    def constants(self, experts: int) -> dict[str, int]:
        """Return the constants of `tile_of`."""
        return {
            "P": 0 if self.in_order else self.pairs,  # the sorted are the same kernel for any number
            "K": self.chosen,
            "K_BLOCK": triton.next_power_of_2(self.chosen),
            "E": experts,
            "E_BLOCK": triton.next_power_of_2(experts),
            "IN_ORDER": self.in_order,
        }


def sorted_pairs(order: Order, experts_TK: Tensor) -> Tiles:
    """Return the tiles of sorted pairs."""
    return Tiles(order.pairs_P, order.starts_E1, experts_TK, len(order.pairs_P), order.chosen, in_order=True)


def chosen(experts_TK: Tensor) -> Tiles:
    """Return the tiles of at most `MOST_UNSORTED` tokens, by their choices."""
    return Tiles(experts_TK, experts_TK, experts_TK, experts_TK.numel(), experts_TK.shape[1], in_order=False)


@triton.jit
def tile_of(
    listed_ptr,
    starts_ptr,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    IN_ORDER: tl.constexpr,
):
    """Return the expert (E if there is no tile), its pairs, the rows of their inner values, and which of them exist."""
    if IN_ORDER:
        expert, start, last = _next_sorted(starts_ptr, E, E_BLOCK, PAIRS)
        inner = start + tl.arange(0, PAIRS)
        there = inner < last
        pair = tl.load(listed_ptr + inner, mask=there, other=0).to(tl.int64)
    else:
        expert, pair = _among_chosen(listed_ptr, P, K, K_BLOCK, E, PAIRS)
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
    takes = first < P
    if P < E:
        takes = first == mine
    return tl.where(takes, expert, E), pair
