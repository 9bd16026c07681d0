# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The products of one row. Letters as in `reference`.

A program takes some of the weight's rows with all their columns, so no sum crosses programs. One row cannot use a
tensor core: the products are multiplied and added one by one in float32. The root mean square of the row is a factor of
the whole product, so every program computes it together with the product.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, values_of
from stoop_worker.kernels.row_linear.reference import RowNorm

__all__ = ["Cut", "cut_for", "divides", "row_linear"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of the work: rows of the weight in a program, and columns read at once; both are powers of two.

    With gating a program takes `rows` gates and their ups. If the kernel starts early, a program reads its first `held`
    blocks of columns before the row is ready.
    """

    rows: int = 16
    columns: int = 512
    warps: int = 4
    stages: int = 4
    held: int = 2


_PLAIN, _GATED = Cut(), Cut(rows=8)
_PLAIN_FP8, _GATED_FP8 = Cut(stages=6, held=4), Cut(rows=8, stages=6)  # half the bytes a block


def divides(weight_NC: Weight) -> bool:
    """Return whether the weight's rows are contiguous, and blocks divide it evenly."""
    out, width = weight_NC.shape
    whole = isinstance(weight_NC, Tensor) or (weight_NC.side % _PLAIN.rows == 0 and width % weight_NC.side == 0)
    return whole and values_of(weight_NC).stride(1) == 1 and out % _PLAIN.rows == 0 and width % 128 == 0


def cut_for(weight_NC: Weight, *, gated: bool) -> Cut:
    """Choose the split for a weight, from its shape and dtype only."""
    plain, with_gates = (_PLAIN_FP8, _GATED_FP8) if isinstance(weight_NC, BlockFp8) else (_PLAIN, _GATED)
    cut = with_gates if gated else plain
    columns = next(columns for columns in (512, 256, 128) if weight_NC.shape[1] % columns == 0)
    return replace(cut, columns=columns)


def row_linear(
    x_1C: Tensor,
    weight_NC: Weight,
    *,
    norm: RowNorm | None = None,
    added_to_BN: Tensor | None = None,
    gated: bool = False,
    cut: Cut | None = None,
) -> Tensor:
    """Compute `reference.row_linear` for one row."""
    cut = cut or cut_for(weight_NC, gated=gated)
    values, (made, width) = values_of(weight_NC), weight_NC.shape
    scales, side = (x_1C, 0) if isinstance(weight_NC, Tensor) else (weight_NC.scales.contiguous(), weight_NC.side)
    out = made // 2 if gated else made
    if x_1C.shape != (1, width) or out % cut.rows or width % cut.columns or values.stride(1) != 1 or side % cut.rows:
        raise ValueError(f"{cut} does not fit rows of {tuple(x_1C.shape)} and a weight of {tuple(weight_NC.shape)}")
    x_1C = x_1C.contiguous()
    y_1N = torch.empty((1, out), dtype=x_1C.dtype, device=x_1C.device)
    launch = early.options(x_1C.device, 1)
    kernel: Any = _row_product
    kernel[(out // cut.rows,)](
        x_1C,
        x_1C if norm is None else norm.weight_C.contiguous(),
        values,
        scales,
        x_1C if added_to_BN is None else added_to_BN.contiguous(),
        y_1N,
        values.stride(0),
        0.0 if norm is None else norm.epsilon,
        C=width,
        N=out,
        ROWS=cut.rows,
        COLUMNS=cut.columns,
        STAGES=cut.stages,
        HELD=min(cut.held, width // cut.columns) if launch["EARLY"] else 0,
        NORM=norm is not None,
        GATED=gated,
        ADD=added_to_BN is not None,
        SIDE=side,
        SCALES=scales.shape[1],
        num_warps=cut.warps,
        **launch,
    )
    return y_1N


@triton.jit
def _row_product(
    x_ptr,
    norm_ptr,
    weight_ptr,
    scales_ptr,
    added_to_ptr,
    y_ptr,
    weight_stride,
    epsilon,
    C: tl.constexpr,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    HELD: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    SIDE: tl.constexpr,
    SCALES: tl.constexpr,
    EARLY: tl.constexpr,
):
    first = tl.program_id(0) * ROWS
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    weight_ptrs = weight_ptr + first.to(tl.int64) * weight_stride + row[:, None] * weight_stride + column[None, :]
    up_ptrs = weight_ptrs + tl.cast(weight_stride, tl.int64) * N

    up_scales_ptr = scales_ptr
    if SIDE > 0:
        up_scales_ptr = scales_ptr + (N + first) // SIDE * SCALES
        scales_ptr += first // SIDE * SCALES

    early.let_next_start(EARLY)
    held = ()
    for tile in tl.static_range(HELD):
        held = held + (tl.load(weight_ptrs + tile * COLUMNS),)  # type: ignore[assignment]  # noqa: RUF005
        if GATED:
            held = held + (tl.load(up_ptrs + tile * COLUMNS),)  # type: ignore[assignment]  # noqa: RUF005
    early.wait(EARLY)

    made = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    ups = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    squares = tl.zeros((COLUMNS,), dtype=tl.float32)
    for tile in tl.static_range(HELD):
        x, squares = _input(x_ptr, norm_ptr, squares, tile * COLUMNS + column, NORM)
        if GATED:
            made = _grown(made, held[2 * tile], x, scales_ptr, tile * COLUMNS + column, SIDE)
            ups = _grown(ups, held[2 * tile + 1], x, up_scales_ptr, tile * COLUMNS + column, SIDE)
        else:
            made = _grown(made, held[tile], x, scales_ptr, tile * COLUMNS + column, SIDE)
    for start in tl.range(HELD * COLUMNS, C, COLUMNS, num_stages=STAGES):
        x, squares = _input(x_ptr, norm_ptr, squares, start + column, NORM)
        made = _grown(made, tl.load(weight_ptrs + start), x, scales_ptr, start + column, SIDE)
        if GATED:
            ups = _grown(ups, tl.load(up_ptrs + start), x, up_scales_ptr, start + column, SIDE)

    scale = _factor(squares, epsilon, C, NORM)
    y = tl.sum(made, 1) * scale
    if GATED:
        y = y * tl.sigmoid(y) * (tl.sum(ups, 1) * scale)
    if ADD:
        y += tl.load(added_to_ptr + first + row).to(tl.float32)
    tl.store(y_ptr + first + row, y.to(y_ptr.dtype.element_ty))


@triton.jit
def _input(x_ptr, norm_ptr, squares, column, NORM: tl.constexpr):
    """Return some of the row's values, times the norm's weights, and the sums of squares that they were added to."""
    x = tl.load(x_ptr + column).to(tl.float32)
    if NORM:
        squares += x * x
        x *= tl.load(norm_ptr + column).to(tl.float32)
    return x, squares


@triton.jit
def _grown(sums, weight, x, scales_ptr, column, SIDE: tl.constexpr):
    """Return the sums with the products of some more columns, whose blocks have scales if they have a SIDE."""
    if SIDE > 0:
        x *= tl.load(scales_ptr + column // SIDE)
    return sums + weight.to(tl.float32) * x[None, :]


@triton.jit
def _factor(squares, epsilon, C: tl.constexpr, NORM: tl.constexpr):
    """Return the norm's factor of the whole product."""
    scale = 1.0
    if NORM:
        scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / C + epsilon)
    return scale
