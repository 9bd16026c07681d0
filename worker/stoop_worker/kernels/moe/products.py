# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The products of all experts in one launch each.

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
from stoop_worker.kernels.moe.corrections import Correction, block_of, corrected_sums, own_values, with_own_values
from stoop_worker.kernels.moe.tiles import Tiles, tile_of
from stoop_worker.kernels.moe.weights import ExpertLinear

__all__ = ["Cut", "Cuts", "computes_in_fp8", "cuts_for", "down_product", "up_product"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of the work: pairs of a tile, rows of the weight and columns at a time, all powers of two.

    In the second product a program that knows its expert reads its first `held` blocks of columns before the inner
    values are ready, if it starts early.
    """

    pairs: int
    rows: int
    columns: int
    warps: int
    stages: int
    held: int = 0


class Cuts(NamedTuple):
    """The splits of both products."""

    up: Cut
    down: Cut


# the fastest of a sweep on an H200, at Moondream 3's sizes
_ONE = Cuts(up=Cut(pairs=16, rows=32, columns=128, warps=4, stages=3), down=Cut(16, 32, 256, 4, 3, held=1))
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


def up_product(
    x_TC: Tensor, tiles: Tiles, up: ExpertLinear, cut: Cut, *, fp8: bool = False, corrected: Correction | None = None
) -> Tensor:
    """Return gelu(a) * (g + 1) of every pair, in the order of sorted pairs if they are: (P, F) of the dtype of x.

    `fp8` quantises the rows of x for weights in float8.
    """
    inner = up.weight_EOI.shape[1] // 2
    inner_PF = torch.empty((tiles.pairs, inner), dtype=x_TC.dtype, device=x_TC.device)
    _launch(_up, _Rows.of(x_TC, fp8, corrected), tiles, up, inner_PF, cut)
    return inner_PF


def down_product(
    inner_PF: Tensor,
    tiles: Tiles,
    down: ExpertLinear,
    cut: Cut,
    *,
    fp8: bool = False,
    corrected: Correction | None = None,
) -> Tensor:
    """Return W2[e] z of every pair, by pair: (P, C) of the dtype of z; `fp8` as in `up_product`."""
    out_PC = torch.empty((tiles.pairs, down.weight_EOI.shape[1]), dtype=inner_PF.dtype, device=inner_PF.device)
    _launch(_down, _Rows.of(inner_PF, fp8, corrected), tiles, down, out_PC, cut)
    return out_PC


class _Rows(NamedTuple):
    x: Tensor
    scales_T1: Tensor | None
    corrected: Correction | None

    @classmethod
    def of(cls, x: Tensor, fp8: bool, corrected: Correction | None) -> "_Rows":
        if not fp8:
            return cls(x, None, corrected)
        values, scales_T1 = quantise_rows(x)
        return cls(values, scales_T1, corrected)


def _launch(kernel: Any, given: _Rows, tiles: Tiles, weights: ExpertLinear, out: Tensor, cut: Cut) -> None:
    x, scales_T1, corrected = given
    experts, _, width = weights.weight_EOI.shape
    pairs, rows = out.shape
    weight = weights.weight_EOI.contiguous()
    columns = min(cut.columns, max(16, triton.next_power_of_2(width)))
    thin, b_ERO, numbers_T, own = corrected or (out, out, tiles.listed, 0)
    ranks = b_ERO.shape[1] if corrected else 0
    kernel[(triton.cdiv(rows, cut.rows), tiles.most(cut.pairs, experts))](
        x,
        weight if scales_T1 is None else scales_T1,
        weight,
        weight if weights.scales_EO is None else weights.scales_EO,
        tiles.listed,
        tiles.starts,
        thin,
        b_ERO.contiguous(),
        numbers_T,
        out,
        x.stride(0),
        **tiles.constants(experts),
        R=ranks,
        R_BLOCK=block_of(ranks),
        OWN=own,
        N=rows,
        WIDTH=width,
        PAIRS=cut.pairs,
        ROWS=cut.rows,
        COLUMNS=columns,
        STAGES=cut.stages,
        HELD=0 if tiles.in_order else min(cut.held, triton.cdiv(width, columns)),
        SCALED=weights.scales_EO is not None,
        ROWS_SCALED=scales_T1 is not None,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=cut.warps,
        **early.options(x.device, pairs // tiles.chosen),
    )


@triton.jit
def _up(
    x_ptr,
    row_scales_ptr,
    weight_ptr,
    scales_ptr,
    listed_ptr,
    starts_ptr,
    thin_ptr,
    b_ptr,
    numbers_ptr,
    out_ptr,
    x_stride,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    IN_ORDER: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    OWN: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    HELD: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    # in this order, so that the next kernel may read the choice of experts before its own wait
    early.wait(EARLY)
    early.let_next_start(EARLY)
    expert, pair, inner, there = tile_of(listed_ptr, starts_ptr, P, K, K_BLOCK, E, E_BLOCK, PAIRS, IN_ORDER)
    if expert < E:
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, COLUMNS)
        token = pair // K
        x_ptrs = x_ptr + token[:, None] * x_stride + column[None, :]
        a_ptrs = weight_ptr + (expert.to(tl.int64) * 2 * N + row[None, :]) * WIDTH + column[:, None]
        g_ptrs = a_ptrs + N * WIDTH
        b_ptr += expert.to(tl.int64) * R * 2 * N
        if OWN > 0:
            # read ahead of the products, which take longer
            number = tl.load(numbers_ptr + token, mask=there, other=0)
            own_a = own_values(thin_ptr, b_ptr, pair, number, there, row, 2 * N, N, OWN)
            own_g = own_values(thin_ptr, b_ptr + N, pair, number, there, row, 2 * N, N, OWN)
        a = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        g = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        for start in tl.range(0, WIDTH, COLUMNS, num_stages=STAGES):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=there[:, None] & inside[None, :], other=0.0)
            of_weight = inside[:, None] & (row < N)[None, :]
            a_weight = tl.load(a_ptrs + start, mask=of_weight, other=0.0).to(x.dtype)
            g_weight = tl.load(g_ptrs + start, mask=of_weight, other=0.0).to(x.dtype)
            a = tl.dot(x, a_weight, a, input_precision=PRECISION)
            g = tl.dot(x, g_weight, g, input_precision=PRECISION)
        scale_ptrs, row_scale_ptrs = scales_ptr + expert * 2 * N + row, row_scales_ptr + token
        a = _scaled(a, scale_ptrs, row_scale_ptrs, row < N, there, SCALED, ROWS_SCALED)
        g = _scaled(g, scale_ptrs + N, row_scale_ptrs, row < N, there, SCALED, ROWS_SCALED)
        if OWN > 0:
            a = with_own_values(a, own_a, OWN)
            g = with_own_values(g, own_g, OWN)
        elif R > 0:
            a = corrected_sums(a, thin_ptr, b_ptr, inner, there, row, 2 * N, N, R, R_BLOCK, PRECISION)
            g = corrected_sums(g, thin_ptr, b_ptr + N, inner, there, row, 2 * N, N, R, R_BLOCK, PRECISION)
        value = 0.5 * a * (1.0 + tl.erf(a * 0.7071067811865476)) * (g + 1.0)
        out_ptrs = out_ptr + inner[:, None] * N + row[None, :]
        tl.store(out_ptrs, value.to(out_ptr.dtype.element_ty), mask=there[:, None] & (row < N)[None, :])


@triton.jit
def _down(
    x_ptr,
    row_scales_ptr,
    weight_ptr,
    scales_ptr,
    listed_ptr,
    starts_ptr,
    thin_ptr,
    b_ptr,
    numbers_ptr,
    out_ptr,
    x_stride,
    P: tl.constexpr,
    K: tl.constexpr,
    K_BLOCK: tl.constexpr,
    E: tl.constexpr,
    E_BLOCK: tl.constexpr,
    IN_ORDER: tl.constexpr,
    R: tl.constexpr,
    R_BLOCK: tl.constexpr,
    OWN: tl.constexpr,
    N: tl.constexpr,
    WIDTH: tl.constexpr,
    PAIRS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    HELD: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS_SCALED: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    if IN_ORDER:
        early.wait(EARLY)
    # otherwise `_up` let this kernel start when the choice of experts was there
    expert, pair, inner, there = tile_of(listed_ptr, starts_ptr, P, K, K_BLOCK, E, E_BLOCK, PAIRS, IN_ORDER)
    weight_ptrs = weight_ptr + (expert.to(tl.int64) * N + row[None, :]) * WIDTH + column[:, None]
    held = ()
    for block in tl.static_range(HELD):
        of_weight = (expert < E) & (block * COLUMNS + column < WIDTH)[:, None] & (row < N)[None, :]
        held = held + (tl.load(weight_ptrs + block * COLUMNS, mask=of_weight, other=0.0),)  # type: ignore[assignment]  # noqa: RUF005
    if not IN_ORDER:
        early.wait(EARLY)
    if expert < E:
        x_ptrs = x_ptr + inner[:, None] * x_stride + column[None, :]
        b_ptr += expert.to(tl.int64) * R * N
        if OWN > 0:
            number = tl.load(numbers_ptr + pair // K, mask=there, other=0)
            own = own_values(thin_ptr, b_ptr, pair, number, there, row, N, N, OWN)
        sums = tl.zeros((PAIRS, ROWS), dtype=tl.float32)
        for block in tl.static_range(HELD):
            inside = block * COLUMNS + column < WIDTH
            x = tl.load(x_ptrs + block * COLUMNS, mask=there[:, None] & inside[None, :], other=0.0)
            sums = tl.dot(x, held[block].to(x.dtype), sums, input_precision=PRECISION)
        for start in tl.range(HELD * COLUMNS, WIDTH, COLUMNS, num_stages=STAGES):
            inside = start + column < WIDTH
            x = tl.load(x_ptrs + start, mask=there[:, None] & inside[None, :], other=0.0)
            weight = tl.load(weight_ptrs + start, mask=inside[:, None] & (row < N)[None, :], other=0.0).to(x.dtype)
            sums = tl.dot(x, weight, sums, input_precision=PRECISION)
        scale_ptrs, row_scale_ptrs = scales_ptr + expert * N + row, row_scales_ptr + inner
        sums = _scaled(sums, scale_ptrs, row_scale_ptrs, row < N, there, SCALED, ROWS_SCALED)
        if OWN > 0:
            sums = with_own_values(sums, own, OWN)
        elif R > 0:
            sums = corrected_sums(sums, thin_ptr, b_ptr, inner, there, row, N, N, R, R_BLOCK, PRECISION)
        out_ptrs = out_ptr + pair[:, None] * N + row[None, :]
        tl.store(out_ptrs, sums.to(out_ptr.dtype.element_ty), mask=there[:, None] & (row < N)[None, :])


@triton.jit
def _scaled(sums, scale_ptrs, row_scale_ptrs, inside, there, SCALED: tl.constexpr, ROWS_SCALED: tl.constexpr):
    """Return the sums (PAIRS, ROWS) times the scales of a float8 weight's rows, and of quantised rows of x."""
    if SCALED:
        sums *= tl.load(scale_ptrs, mask=inside, other=0.0)[None, :]
    if ROWS_SCALED:
        sums *= tl.load(row_scale_ptrs, mask=there, other=0.0)[:, None]
    return sums
