# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The corrections that low-rank adapters make to the products of experts.

All adapters lie side by side. A thin product of its own makes a few values for each pair, and the large product
multiplies them with B. Few pairs read the columns of their token's adapter alone. Many pairs take all columns, masked
to their tokens' adapters, because matrix products then pay off.

T tokens, E experts, K chosen for a token, P = T K pairs, R columns of all adapters, I in, O out.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.moe.tiles import Tiles, tile_of

__all__ = ["Correction", "Owners", "block_of", "corrected_sums", "correction", "own_values", "with_own_values"]

_RANKS = 64
_FEW = 16  # pairs an expert
_VALUES = 4096  # of A that a program reads at a time
_MOST_OWN = 16  # columns of one adapter that a pair reads by itself


class Owners(NamedTuple):
    """The numbers of the tokens' adapters, and the columns of each adapter."""

    numbers_T: Tensor
    rank: int


class Correction(NamedTuple):
    """A correction of each pair: its thin values times `b_ERO` of its expert.

    Either `thin` is (P, rank) by pair, and `own` is the rank, or it is (P, R) in the order of inner values, and `own`
    is 0.
    """

    thin: Tensor
    b_ERO: Tensor
    numbers_T: Tensor
    own: int


def correction(x: Tensor, tiles: Tiles, a_ERI: Tensor, b_ERO: Tensor, owners: Owners, *, of_tokens: bool) -> Correction:
    """Return the correction of a product of x: its rows are tokens, or the inner values of pairs."""
    own = owners.rank if tiles.pairs <= _FEW * len(a_ERI) and owners.rank <= _MOST_OWN else 0
    thin = (_of_own_columns if own else _of_all_columns)(x, tiles, a_ERI.contiguous(), owners, of_tokens)
    return Correction(thin, b_ERO, owners.numbers_T, own)


def _of_own_columns(x: Tensor, tiles: Tiles, a_ERI: Tensor, owners: Owners, of_tokens: bool) -> Tensor:
    width, rank = a_ERI.shape[2], owners.rank
    thin = torch.empty((tiles.pairs, rank), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(rank)
    kernel: Any = _own_thin
    kernel[(tiles.pairs,)](
        x,
        a_ERI,
        owners.numbers_T,
        tiles.experts_TK,
        tiles.listed,
        thin,
        x.stride(0),
        K=tiles.chosen,
        IN_ORDER=tiles.in_order,
        WIDTH=width,
        R=a_ERI.shape[1],
        RANK=rank,
        RANK_BLOCK=block,
        COLUMNS=min(_VALUES // block, triton.next_power_of_2(width)),
        OF_TOKENS=of_tokens,
        num_warps=4,
        **early.options(x.device, tiles.pairs // tiles.chosen),
    )
    return thin


def _of_all_columns(x: Tensor, tiles: Tiles, a_ERI: Tensor, owners: Owners, of_tokens: bool) -> Tensor:
    experts, columns, width = a_ERI.shape
    thin = torch.empty((tiles.pairs, columns), dtype=x.dtype, device=x.device)
    block = block_of(columns)
    pairs = 16 if not tiles.in_order or tiles.pairs <= _FEW * experts else 64
    kernel: Any = _thin
    kernel[(triton.cdiv(columns, block), tiles.most(pairs, experts))](
        x,
        a_ERI,
        owners.numbers_T,
        tiles.listed,
        tiles.starts,
        thin,
        x.stride(0),
        **tiles.constants(experts),
        WIDTH=width,
        R=columns,
        RANK=owners.rank,
        R_BLOCK=block,
        PAIRS=pairs,
        COLUMNS=min(128, max(16, triton.next_power_of_2(width))),
        OF_TOKENS=of_tokens,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=4,
        **early.options(x.device, tiles.pairs // tiles.chosen),
    )
    return thin


def block_of(columns: int) -> int:
    """Return the number of columns of adapters that a program takes at a time."""
    return next(block for block in (16, 32, _RANKS) if block >= min(columns, _RANKS))


@triton.jit
def corrected_sums(
    sums,
    thin_ptr,
    b_ptr,
    inner,
    there,
    row,
    b_stride: tl.constexpr,
    N: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return the sums (PAIRS, ROWS) with the tokens' thin values times the expert's B."""
    rank = tl.arange(0, R_BLOCK)
    for start in tl.static_range(0, R, R_BLOCK):
        real = start + rank < R
        thin_ptrs = thin_ptr + inner[:, None] * R + start + rank[None, :]
        thin = tl.load(thin_ptrs, mask=there[:, None] & real[None, :], other=0.0)
        b_ptrs = b_ptr + (start + rank)[:, None] * b_stride + row[None, :]
        b = tl.load(b_ptrs, mask=real[:, None] & (row < N)[None, :], other=0.0)
        sums = tl.dot(thin, b, sums, input_precision=PRECISION)
    return sums


@triton.jit
def own_values(thin_ptr, b_ptr, pair, number, there, row, b_stride: tl.constexpr, N: tl.constexpr, OWN: tl.constexpr):
    """Return each pair's thin values, and the columns of B of its adapter; `b_ptr` is that of the expert."""
    corrected = there & (number > 0)
    held = ()
    for rank in tl.static_range(OWN):
        thin = tl.load(thin_ptr + pair * OWN + rank, mask=corrected, other=0.0)
        b_ptrs = b_ptr + (number[:, None] * OWN + rank) * b_stride + row[None, :]
        held = held + (thin, tl.load(b_ptrs, mask=corrected[:, None] & (row < N)[None, :], other=0.0))  # type: ignore[assignment]  # noqa: RUF005
    return held


@triton.jit
def with_own_values(sums, held, OWN: tl.constexpr):
    """Return the sums (PAIRS, ROWS) with the products of `own_values`."""
    for rank in tl.static_range(OWN):
        sums += held[2 * rank][:, None] * held[2 * rank + 1].to(tl.float32)
    return sums


@triton.jit
def _own_thin(
    x_ptr,
    a_ptr,
    numbers_ptr,
    experts_ptr,
    listed_ptr,
    thin_ptr,
    x_stride,
    K: tl.constexpr,
    IN_ORDER: tl.constexpr,
    WIDTH: tl.constexpr,
    R: tl.constexpr,
    RANK: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    OF_TOKENS: tl.constexpr,
    EARLY: tl.constexpr,
):
    # in this order, as in `_up`
    early.wait(EARLY)
    early.let_next_start(EARLY)
    inner = tl.program_id(0)
    pair = inner
    if IN_ORDER:
        pair = tl.load(listed_ptr + inner)
    token = pair // K
    number = tl.load(numbers_ptr + token)
    if number > 0:
        source = inner
        if OF_TOKENS:
            source = token
        expert = tl.load(experts_ptr + pair).to(tl.int64)
        rank = tl.arange(0, RANK_BLOCK)
        column = tl.arange(0, COLUMNS)
        x_ptrs = x_ptr + source.to(tl.int64) * x_stride + column
        a_ptrs = a_ptr + (expert * R + number * RANK + rank[:, None]) * WIDTH + column[None, :]
        sums = tl.zeros((RANK_BLOCK, COLUMNS), dtype=tl.float32)
        for start in tl.static_range(0, WIDTH, COLUMNS):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=inside, other=0.0).to(tl.float32)
            a = tl.load(a_ptrs + start, mask=(rank < RANK)[:, None] & inside[None, :], other=0.0)
            sums += a.to(tl.float32) * x[None, :]
        tl.store(thin_ptr + pair * RANK + rank, tl.sum(sums, axis=1), mask=rank < RANK)


@triton.jit
def _thin(
    x_ptr,
    a_ptr,
    numbers_ptr,
    listed_ptr,
    starts_ptr,
    thin_ptr,
    x_stride,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    IN_ORDER: tl.constexpr,
    WIDTH: tl.constexpr,
    R: tl.constexpr,
    RANK: tl.constexpr,
    R_BLOCK: tl.constexpr,
    PAIRS: tl.constexpr,
    COLUMNS: tl.constexpr,
    OF_TOKENS: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    # in this order, as in `_up`
    early.wait(EARLY)
    early.let_next_start(EARLY)
    expert, pair, inner, there = tile_of(listed_ptr, starts_ptr, P, K, K_BLOCK, E, E_BLOCK, PAIRS, IN_ORDER)
    if expert < E:
        rank = tl.program_id(0) * R_BLOCK + tl.arange(0, R_BLOCK)
        column = tl.arange(0, COLUMNS)
        token = pair // K
        source = inner
        if OF_TOKENS:
            source = token
        x_ptrs = x_ptr + source[:, None] * x_stride + column[None, :]
        a_ptrs = a_ptr + (expert.to(tl.int64) * R + rank[None, :]) * WIDTH + column[:, None]
        thin = tl.zeros((PAIRS, R_BLOCK), dtype=tl.float32)
        for start in tl.range(0, WIDTH, COLUMNS, num_stages=3):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=there[:, None] & inside[None, :], other=0.0)
            a = tl.load(a_ptrs + start, mask=inside[:, None] & (rank < R)[None, :], other=0.0)
            thin = tl.dot(x, a, thin, input_precision=PRECISION)
        number = tl.load(numbers_ptr + token, mask=there, other=0)
        own = (rank // RANK)[None, :] == number[:, None]
        thin = tl.where(own & (number > 0)[:, None], thin, 0.0)
        real = there[:, None] & (rank < R)[None, :]
        tl.store(thin_ptr + inner[:, None] * R + rank[None, :], thin.to(thin_ptr.dtype.element_ty), mask=real)
