# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The products. Letters as in `reference`.

A program takes a block of the weight's rows, and all or one part of its columns; the few rows of x, padded to a power
of two of at least 16, are the columns of its dot. Torch computes the products whose weight the cut does not divide.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels import early
from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, dense, values_of
from stoop_worker.kernels.hopper import Unusable
from stoop_worker.kernels.skinny_linear import hopper, reference
from stoop_worker.kernels.swiglu.kernel import swiglu

__all__ = [
    "MOST_ROWS",
    "MOST_SPLIT_ROWS",
    "Cut",
    "gated_linear",
    "gated_mlp",
    "linear",
    "rows_dtype",
    "skinny_linear",
    "split_linear",
]

MOST_ROWS = 16
"""With more rows, the library's product is faster."""

MOST_SPLIT_ROWS = 64

_LEAST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of the work: blocks of the weight's rows and columns, both powers of two, and parts of the columns.

    With gating a program takes `rows` gates and their ups. If a kernel starts early, a program reads its first `held`
    blocks of columns before the rows are ready; with gating only those of the gates.
    """

    rows: int
    columns: int = 128
    parts: int = 1
    warps: int = 4
    stages: int = 4
    held: int = 0

    def divides(self, weight_NK: Weight) -> bool:
        """Return whether the weight is contiguous, and the cut's blocks divide it and its blocks of scales evenly."""
        out, width = weight_NK.shape
        if isinstance(weight_NK, BlockFp8):
            side = weight_NK.side
            if side % self.rows or side % self.columns or width % (side * self.parts):
                return False
        return out % self.rows == 0 and width % (self.columns * self.parts) == 0 and values_of(weight_NK).stride(1) == 1


_WHOLE, _WHOLE_OF_ONE = Cut(rows=128, held=1), Cut(rows=64, held=2)
_SPLIT, _SPLIT_OF_ONE = Cut(rows=64, parts=8, stages=3, held=1), Cut(rows=64, parts=4, stages=6, held=1)
_GATED = Cut(rows=64, stages=3, held=1)
_WHOLE_FP8 = Cut(rows=64, held=2)

_GATED_RANGE = 64
"""A divisor of gated values in float16, which may exceed its range. Values below 0.004 lose digits."""


def linear(x_BC: Tensor, weight_NC: Weight, *, dtype: torch.dtype | None = None, in_line: bool = False) -> Tensor:
    """Compute `skinny_linear.linear`."""
    if (in_line or isinstance(weight_NC, BlockFp8)) and _suits_hopper(x_BC, weight_NC):
        with suppress(Unusable):
            return hopper.linear(x_BC, weight_NC, dtype=dtype)
    if isinstance(weight_NC, Tensor):
        return functional.linear(x_BC, weight_NC).to(dtype or x_BC.dtype)
    return skinny_linear(x_BC, weight_NC).to(dtype or x_BC.dtype)


def rows_dtype(x_BC: Tensor, weights: Sequence[Weight]) -> torch.dtype:
    """Compute `skinny_linear.rows_dtype`."""
    suits = all(isinstance(weight, BlockFp8) and hopper.takes(x_BC, weight) for weight in weights)
    return torch.float16 if suits else x_BC.dtype


def gated_mlp(x_BC: Tensor, gate_up_NC: Weight, down_CF: Weight) -> Tensor:
    """Compute `reference.gated_mlp`."""
    if x_BC.dtype is torch.float16 and _suits_hopper(x_BC, gate_up_NC) and _suits_hopper(x_BC, down_CF):
        with suppress(Unusable):
            inner_BF = hopper.gated_linear(x_BC, gate_up_NC, factor=1 / _GATED_RANGE)
            return hopper.split_linear(inner_BF, down_CF, factor=_GATED_RANGE)
    return split_linear(gated_linear(x_BC, gate_up_NC), down_CF, in_line=True)


def _suits_hopper(x_BC: Tensor, weight_NC: Weight) -> bool:
    """Return whether the kernel for Hopper is the fastest: for few rows and 16 bits Triton's is."""
    return hopper.takes(x_BC, weight_NC) and (isinstance(weight_NC, BlockFp8) or len(x_BC) > MOST_ROWS)


def skinny_linear(
    x_BC: Tensor, weight_NC: Weight, bias_N: Tensor | None = None, *, cut: Cut | None = None, in_line: bool = False
) -> Tensor:
    """Compute `reference.skinny_linear`; rows of `x_BC` may be strided."""
    if in_line and cut is None and _suits_hopper(x_BC, weight_NC):
        with suppress(Unusable):
            return hopper.linear(x_BC, weight_NC, bias_N)
    if isinstance(weight_NC, BlockFp8):
        cut = cut or _WHOLE_FP8
    cut = cut or (_WHOLE_OF_ONE if x_BC.shape[0] == 1 else _WHOLE)
    if cut.parts != 1:
        raise ValueError(f"a whole product has one part, not {cut.parts}: use split_linear")
    if not 0 < x_BC.shape[0] <= _most_rows(weight_NC) or not cut.divides(weight_NC):
        return functional.linear(x_BC, _dense(weight_NC, x_BC.dtype), bias_N)
    y_BN = torch.empty((x_BC.shape[0], weight_NC.shape[0]), dtype=x_BC.dtype, device=x_BC.device)
    _launch(x_BC, weight_NC, y_BN, cut=cut, bias_N=bias_N)
    return y_BN


def _most_rows(weight_NC: Weight) -> int:
    """Return up to how many rows the kernel is faster than the library, which has no product with float8 weights."""
    return MOST_ROWS if isinstance(weight_NC, Tensor) else MOST_SPLIT_ROWS


def _dense(weight_NC: Weight, dtype: torch.dtype) -> Tensor:
    return weight_NC if isinstance(weight_NC, Tensor) else dense(weight_NC, dtype)


def gated_linear(x_BC: Tensor, weight_NC: Weight, *, cut: Cut | None = None) -> Tensor:
    """Compute `reference.gated_linear`; rows of `x_BC` may be strided. A given `cut` takes up to 64 rows."""
    if cut is None and _suits_hopper(x_BC, weight_NC):
        with suppress(Unusable):
            return hopper.gated_linear(x_BC, weight_NC)
    most = _most_rows(weight_NC) if cut is None else MOST_SPLIT_ROWS
    cut = cut or _GATED
    gates = weight_NC.shape[0] // 2
    if not 0 < x_BC.shape[0] <= most or gates % cut.rows or not cut.divides(weight_NC):
        return swiglu(functional.linear(x_BC, _dense(weight_NC, x_BC.dtype)))
    y_BF = torch.empty((x_BC.shape[0], gates), dtype=x_BC.dtype, device=x_BC.device)
    _launch(x_BC, weight_NC, y_BF, cut=cut, gated=True)
    return y_BF


def split_linear(x_BK: Tensor, weight_NK: Weight, *, cut: Cut | None = None, in_line: bool = False) -> Tensor:
    """Compute `reference.split_linear`, in the cut's number of parts; rows of `x_BK` may be strided."""
    if cut is None and (in_line or isinstance(weight_NK, BlockFp8)) and _suits_hopper(x_BK, weight_NK):
        with suppress(Unusable):
            return hopper.split_linear(x_BK, weight_NK)
    cut = cut or _split_of(x_BK.shape[0], weight_NK)
    if not 0 < x_BK.shape[0] <= MOST_SPLIT_ROWS or not cut.divides(weight_NK):
        return _one_part(x_BK, _dense(weight_NK, x_BK.dtype))
    shape = (cut.parts, x_BK.shape[0], weight_NK.shape[0])
    parts_SBN = torch.empty(shape, dtype=torch.float32, device=x_BK.device)
    _launch(x_BK, weight_NK, parts_SBN, cut=cut)
    return parts_SBN


def _split_of(count: int, weight_NK: Weight) -> Cut:
    """Return the usual split, in fewer parts if the columns need it."""
    usual = _SPLIT_OF_ONE if count == 1 else _SPLIT
    fewer = (replace(usual, parts=parts) for parts in (8, 4, 2) if parts <= usual.parts)
    return next((cut for cut in fewer if cut.divides(weight_NK)), usual)


def _one_part(x_BK: Tensor, weight_NK: Tensor) -> Tensor:
    if x_BK.is_cuda and x_BK.element_size() == 2:  # avoids a float32 copy of the weight
        return torch.mm(x_BK, weight_NK.t(), out_dtype=torch.float32)[None]
    return reference.split_linear(x_BK, weight_NK)


def _launch(
    x_BK: Tensor, weight_NK: Weight, y: Tensor, *, cut: Cut, bias_N: Tensor | None = None, gated: bool = False
) -> None:
    if x_BK.stride(1) != 1:
        x_BK = x_BK.contiguous()
    count, out, width = x_BK.shape[0], y.shape[-1], weight_NK.shape[1]
    stored = values_of(weight_NK)
    scales, side = (stored, 0) if isinstance(weight_NK, Tensor) else (weight_NK.scales.contiguous(), weight_NK.side)
    launch = early.options(x_BK.device, count)
    kernel: Any = _product
    kernel[(out // cut.rows, cut.parts)](
        x_BK,
        stored,
        scales,
        stored if bias_N is None else bias_N.contiguous(),
        y,
        count,
        x_BK.stride(0),
        stored.stride(0),
        N=out,
        PART=width // cut.parts,
        PADDED=max(_LEAST_ROWS, triton.next_power_of_2(count)),
        ROWS=cut.rows,
        COLUMNS=cut.columns,
        STAGES=cut.stages,
        HELD=min(cut.held, width // (cut.parts * cut.columns)) if launch["EARLY"] else 0,
        BIAS=bias_N is not None,
        GATED=gated,
        SIDE=side,
        SCALES=scales.shape[1],
        PRECISION="ieee" if x_BK.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=cut.warps,
        **launch,
    )


@triton.jit
def _product(
    x_ptr,
    weight_ptr,
    scales_ptr,
    bias_ptr,
    y_ptr,
    count,
    x_stride,
    weight_stride,
    N: tl.constexpr,
    PART: tl.constexpr,
    PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    HELD: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,
    SIDE: tl.constexpr,
    SCALES: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    first = tl.program_id(0) * ROWS
    part = tl.program_id(1)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    batch = tl.arange(0, PADDED)
    inside = batch[None, :] < count
    weight_ptrs = weight_ptr + first.to(tl.int64) * weight_stride + part * PART
    weight_ptrs += row[:, None] * weight_stride + column[None, :]
    up_ptrs = weight_ptrs + tl.cast(weight_stride, tl.int64) * N
    x_ptrs = x_ptr + part * PART + batch[None, :] * x_stride + column[:, None]

    up_scales_ptr = scales_ptr
    if SIDE > 0:
        up_scales_ptr = scales_ptr + (N + first) // SIDE * SCALES + part * (PART // SIDE)
        scales_ptr += first // SIDE * SCALES + part * (PART // SIDE)

    early.let_next_start(EARLY)
    held = ()
    for tile in tl.static_range(HELD):
        held = held + (tl.load(weight_ptrs + tile * COLUMNS),)  # type: ignore[assignment]  # noqa: RUF005
    early.wait(EARLY)

    sums = tl.zeros((ROWS, PADDED), dtype=tl.float32)
    ups = tl.zeros((ROWS, PADDED), dtype=tl.float32)
    for tile in tl.static_range(HELD):
        x = tl.load(x_ptrs + tile * COLUMNS, mask=inside, other=0.0)
        sums = _grown(sums, held[tile], x, scales_ptr, tile * COLUMNS, SIDE, PRECISION)
        if GATED:
            ups = _grown(ups, tl.load(up_ptrs + tile * COLUMNS), x, up_scales_ptr, tile * COLUMNS, SIDE, PRECISION)
    for start in tl.range(HELD * COLUMNS, PART, COLUMNS, num_stages=STAGES):
        weight = tl.load(weight_ptrs + start)
        x = tl.load(x_ptrs + start, mask=inside, other=0.0)
        sums = _grown(sums, weight, x, scales_ptr, start, SIDE, PRECISION)
        if GATED:
            ups = _grown(ups, tl.load(up_ptrs + start), x, up_scales_ptr, start, SIDE, PRECISION)
    if GATED:
        sums = sums * tl.sigmoid(sums) * ups
    if BIAS:
        sums += tl.load(bias_ptr + first + row).to(tl.float32)[:, None]

    place = (part * count + batch[None, :]) * N + first + row[:, None]
    tl.store(y_ptr + place, sums.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _grown(sums, weight, x, scales_ptr, column, SIDE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the sums with the products of a block of columns, times the block's scale if blocks have a SIDE."""
    if SIDE > 0:
        made = tl.dot(weight.to(x.dtype), x, input_precision=PRECISION)
        sums += made * tl.load(scales_ptr + column // SIDE)
    else:
        sums = tl.dot(weight, x, sums, input_precision=PRECISION)
    return sums
