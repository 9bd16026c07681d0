# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The products of all experts in one launch each, over pairs that are sorted by expert.

T tokens, E experts, K chosen for a token, P = T K pairs, C model dim, F inner dim of an expert. A program takes a tile
of one expert's pairs and a block of its weight's rows. The number of tiles is known on the device alone, so the grid
has as many as there can be, and the programs without a tile end at once.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.fp8 import quantise_rows
from stoop_worker.kernels.moe.routing import Order
from stoop_worker.kernels.moe.weights import ExpertLinear

__all__ = ["Cut", "Cuts", "computes_in_fp8", "cuts_for", "down_product", "up_product"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of the work: pairs of a tile, rows of the weight and columns at a time, all powers of two."""

    pairs: int
    rows: int
    columns: int
    warps: int
    stages: int

    def tiles(self, pairs: int, experts: int) -> int:
        """Return the most tiles that `pairs` pairs can need."""
        return pairs // self.pairs + min(pairs, experts)


class Cuts(NamedTuple):
    """The splits of both products."""

    up: Cut
    down: Cut


# the fastest of a sweep on an H200, at Moondream 3's sizes
_ONE = Cuts(up=Cut(pairs=16, rows=32, columns=128, warps=4, stages=6), down=Cut(16, 32, 256, 4, 3))
_DECODE = Cuts(up=Cut(16, 32, 128, 4, 4), down=Cut(16, 64, 128, 4, 4))
_BETWEEN = Cuts(up=Cut(64, 64, 64, 4, 4), down=Cut(64, 64, 64, 4, 4))
_SHORT_PREFILL = Cuts(up=Cut(128, 64, 64, 8, 3), down=Cut(128, 128, 64, 8, 3))
_PREFILL = Cuts(up=Cut(128, 128, 64, 8, 3), down=Cut(128, 256, 64, 8, 3))
_FP8_PREFILL = Cuts(up=Cut(128, 64, 128, 8, 3), down=Cut(128, 128, 128, 8, 3))
_FEW, _SOME, _MANY = 16, 48, 128  # pairs an expert


def cuts_for(pairs: int, experts: int, *, fp8: bool = False) -> Cuts:
    """Return the splits for a usual share of `pairs` pairs an expert: few pairs read weights, many compute.

    `fp8` is that of the products.
    """
    share = pairs / experts
    if share <= _FEW:
        return _ONE if pairs <= experts // 4 else _DECODE
    if fp8:
        return _FP8_PREFILL
    return _BETWEEN if share <= _SOME else _SHORT_PREFILL if share <= _MANY else _PREFILL


def computes_in_fp8(pairs: int, up: ExpertLinear) -> bool:
    """Return whether rows are quantised for float8 weights: where there are many, which compute more than they read."""
    experts = up.weight_EOI.shape[0]
    return up.scales_EO is not None and pairs > _FEW * experts


def up_product(x_TC: Tensor, order: Order, up: ExpertLinear, cut: Cut, *, fp8: bool = False) -> Tensor:
    """Return gelu(a) * (g + 1) of every pair, in the order of `order`: (P, F) of the dtype of x.

    `fp8` quantises the rows of x for weights in float8.
    """
    inner = up.weight_EOI.shape[1] // 2
    inner_PF = torch.empty((len(order.pairs_P), inner), dtype=x_TC.dtype, device=x_TC.device)
    _launch(_up, quantise_rows(x_TC) if fp8 else (x_TC, None), order, up, inner_PF, cut)
    return inner_PF


def down_product(inner_PF: Tensor, order: Order, down: ExpertLinear, cut: Cut, *, fp8: bool = False) -> Tensor:
    """Return W2[e] z of every pair, by pair: (P, C) of the dtype of z; `fp8` as in `up_product`."""
    out_PC = torch.empty((len(order.pairs_P), down.weight_EOI.shape[1]), dtype=inner_PF.dtype, device=inner_PF.device)
    _launch(_down, quantise_rows(inner_PF) if fp8 else (inner_PF, None), order, down, out_PC, cut)
    return out_PC


def _launch(
    kernel: Any, scaled: tuple[Tensor, Tensor | None], order: Order, weights: ExpertLinear, out: Tensor, cut: Cut
) -> None:
    x, scales_T1 = scaled
    experts, _, width = weights.weight_EOI.shape
    pairs, rows = out.shape
    weight = weights.weight_EOI.contiguous()
    kernel[(triton.cdiv(rows, cut.rows), cut.tiles(pairs, experts))](
        x,
        weight if scales_T1 is None else scales_T1,
        weight,
        weight if weights.scales_EO is None else weights.scales_EO,
        order.pairs_P,
        order.starts_E1,
        out,
        x.stride(0),
        K=order.chosen,
        E=experts,
        E_BLOCK=triton.next_power_of_2(experts),
        N=rows,
        WIDTH=width,
        PAIRS=cut.pairs,
        ROWS=cut.rows,
        COLUMNS=min(cut.columns, max(16, triton.next_power_of_2(width))),
        STAGES=cut.stages,
        SCALED=weights.scales_EO is not None,
        ROWS_SCALED=scales_T1 is not None,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=cut.warps,
        **early.options(x.device, pairs // order.chosen),
    )


@triton.jit
def _tile(starts_ptr, E: tl.constexpr, E_BLOCK: tl.constexpr, PAIRS: tl.constexpr):
    """Return this program's expert, and its places [first, last); the expert is E if there is no tile."""
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
def _up(
    x_ptr,
    row_scales_ptr,
    weight_ptr,
    scales_ptr,
    pairs_ptr,
    starts_ptr,
    out_ptr,
    x_stride,
    K: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    early.wait(EARLY)
    expert, first, last = _tile(starts_ptr, E, E_BLOCK, PAIRS)
    if expert < E:
        place = first + tl.arange(0, PAIRS)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        token = tl.load(pairs_ptr + place, mask=place < last, other=0).to(tl.int64) // K
        x_ptrs = x_ptr + token[:, None] * x_stride + column[None, :]
        a_ptrs = weight_ptr + (expert.to(tl.int64) * 2 * N + row[None, :]) * WIDTH + column[:, None]
        g_ptrs = a_ptrs + N * WIDTH
        a = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        g = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        for start in tl.range(0, WIDTH, COLUMNS, num_stages=STAGES):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=(place < last)[:, None] & inside[None, :], other=0.0)
            of_weight = inside[:, None] & (row < N)[None, :]
            a_weight = tl.load(a_ptrs + start, mask=of_weight, other=0.0).to(x.dtype)
            g_weight = tl.load(g_ptrs + start, mask=of_weight, other=0.0).to(x.dtype)
            a = tl.dot(x, a_weight, a, input_precision=PRECISION)
            g = tl.dot(x, g_weight, g, input_precision=PRECISION)
        if SCALED:
            scale_ptrs = scales_ptr + expert * 2 * N + row
            a *= tl.load(scale_ptrs, mask=row < N, other=0.0)[None, :]
            g *= tl.load(scale_ptrs + N, mask=row < N, other=0.0)[None, :]
        if ROWS_SCALED:
            row_scale = tl.load(row_scales_ptr + token, mask=place < last, other=0.0)[:, None]
            a *= row_scale
            g *= row_scale
        value = 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476)) * (g + 1.0)
        out_ptrs = out_ptr + place.to(tl.int64)[:, None] * N + row[None, :]
        tl.store(out_ptrs, value.to(out_ptr.dtype.element_ty), mask=(place < last)[:, None] & (row < N)[None, :])


@triton.jit
def _down(
    x_ptr,
    row_scales_ptr,
    weight_ptr,
    scales_ptr,
    pairs_ptr,
    starts_ptr,
    out_ptr,
    x_stride,
    K: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    early.wait(EARLY)
    expert, first, last = _tile(starts_ptr, E, E_BLOCK, PAIRS)
    if expert < E:
        place = first + tl.arange(0, PAIRS)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        x_ptrs = x_ptr + place.to(tl.int64)[:, None] * x_stride + column[None, :]
        weight_ptrs = weight_ptr + (expert.to(tl.int64) * N + row[None, :]) * WIDTH + column[:, None]
        sums = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        for start in tl.range(0, WIDTH, COLUMNS, num_stages=STAGES):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=(place < last)[:, None] & inside[None, :], other=0.0)
            weight = tl.load(weight_ptrs + start, mask=inside[:, None] & (row < N)[None, :], other=0.0).to(x.dtype)
            sums = tl.dot(x, weight, sums, input_precision=PRECISION)
        if SCALED:
            sums *= tl.load(scales_ptr + expert * N + row, mask=row < N, other=0.0)[None, :]
        if ROWS_SCALED:
            sums *= tl.load(row_scales_ptr + place, mask=place < last, other=0.0)[:, None]
        pair = tl.load(pairs_ptr + place, mask=place < last, other=0).to(tl.int64)
        out_ptrs = out_ptr + pair[:, None] * N + row[None, :]
        tl.store(out_ptrs, sums.to(out_ptr.dtype.element_ty), mask=(place < last)[:, None] & (row < N)[None, :])
