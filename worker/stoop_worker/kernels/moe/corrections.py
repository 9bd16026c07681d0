# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The corrections that low-rank adapters make to the products of experts.

All adapters lie side by side. A thin product of its own makes the values of each pair, masked to its token's adapter;
the large product multiplies them with B and adds them to its sums.

T tokens, E experts, K chosen for a token, P = T K pairs, R columns of all adapters, I in, O out.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.moe.tiles import Tiles, tile_of

__all__ = ["Correction", "block_of", "corrected_sums", "correction"]

_RANKS = 64


class Correction(NamedTuple):
    """An adapter's correction of each pair: `thin_PR`, in the order of inner values, times `b_ERO` of its expert."""

    thin_PR: Tensor
    b_ERO: Tensor


def correction(
    x: Tensor, tiles: Tiles, a_ERI: Tensor, b_ERO: Tensor, mask_TR: Tensor, *, of_tokens: bool
) -> Correction:
    """Return the correction of a product of x: its rows are tokens, or the inner values of pairs."""
    experts, columns, width = a_ERI.shape
    thin_PR = torch.empty((tiles.pairs, columns), dtype=x.dtype, device=x.device)
    block = block_of(columns)
    pairs = 16 if not tiles.in_order or tiles.pairs <= 16 * experts else 64
    kernel: Any = _thin
    kernel[(triton.cdiv(columns, block), tiles.most(pairs, experts))](
        x,
        a_ERI.contiguous(),
        mask_TR,
        tiles.listed,
        tiles.starts,
        thin_PR,
        x.stride(0),
        mask_TR.stride(0),
        **tiles.constants(experts),
        WIDTH=width,
        R=columns,
        R_BLOCK=block,
        PAIRS=pairs,
        COLUMNS=min(128, max(16, triton.next_power_of_2(width))),
        OF_TOKENS=of_tokens,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=4,
        **early.options(x.device, tiles.pairs // tiles.chosen),
    )
    return Correction(thin_PR, b_ERO)


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
def _thin(
    x_ptr,
    a_ptr,
    mask_ptr,
    listed_ptr,
    starts_ptr,
    thin_ptr,
    x_stride,
    mask_stride,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    IN_ORDER: tl.constexpr,
    WIDTH: tl.constexpr,
    R: tl.constexpr,
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
        real = there[:, None] & (rank < R)[None, :]
        thin *= tl.load(mask_ptr + token[:, None] * mask_stride + rank[None, :], mask=real, other=0.0).to(tl.float32)
        tl.store(thin_ptr + inner[:, None] * R + rank[None, :], thin.to(thin_ptr.dtype.element_ty), mask=real)
