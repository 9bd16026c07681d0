# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Pillow's filters in two gathering passes, in Pillow's integer arithmetic. H and W rows and columns, C channels."""

import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.resize.taps import Filter, columns_first, device_taps

__all__ = ["resize"]

_ROWS, _COLS = 8, 128


def resize(
    pixels_HWC: Tensor, height: int, width: int, *, by: Filter = Filter.LANCZOS, into_HWC: Tensor | None = None
) -> Tensor:
    """See the reference; the result is bit-identical. Images have fewer than 2^31 values; `into_HWC` is contiguous."""
    pixels_HWC = pixels_HWC.contiguous()
    high, wide, channels = pixels_HWC.shape
    if into_HWC is None:
        into_HWC = pixels_HWC.new_empty((height, width, channels))
    if columns_first(high, wide, height, width):
        return _rows(_columns(pixels_HWC, pixels_HWC.new_empty((height, wide, channels)), by), into_HWC, by)
    return _columns(_rows(pixels_HWC, pixels_HWC.new_empty((high, width, channels)), by), into_HWC, by)


def _rows(pixels_HWC: Tensor, found: Tensor, by: Filter) -> Tensor:
    high, wide, channels = pixels_HWC.shape
    width = found.shape[1]
    first, weights = device_taps(wide, width, by, pixels_HWC.device)
    _resize_rows[_grid(high, width * channels)](
        pixels_HWC, found, first, weights, high, wide, width, len(weights),
        CHANNELS=channels, ROWS=_ROWS, COLS=_COLS,
    )  # fmt: skip
    return found


def _columns(pixels_HWC: Tensor, found: Tensor, by: Filter) -> Tensor:
    high, width, channels = pixels_HWC.shape
    height = found.shape[0]
    first, weights = device_taps(high, height, by, pixels_HWC.device)
    _resize_columns[_grid(height, width * channels)](
        pixels_HWC, found, first, weights, high, height, width * channels, len(weights), ROWS=_ROWS, COLS=_COLS
    )
    return found


def _grid(rows: int, values: int) -> tuple[int, int]:
    return triton.cdiv(values, _COLS), triton.cdiv(rows, _ROWS)


# sizes differ from image to image, so their divisibility and alignment must not trigger a recompilation
@triton.jit(do_not_specialize=["into", "first", "high", "wide", "width", "count"])
def _resize_rows(
    pixels, into, first, weights, high, wide, width, count,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    values = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (rows[:, None] < high) & (values[None, :] < width * CHANNELS)
    channels = values % CHANNELS
    cols = tl.minimum(values // CHANNELS, width - 1)
    start = tl.load(first + cols)
    sources = pixels + tl.minimum(rows, high - 1)[:, None] * (wide * CHANNELS) + channels[None, :]
    sums = tl.full([ROWS, COLS], 1 << 21, tl.int32)
    for tap in range(count):
        weight = tl.load(weights + tap * width + cols)
        at = tl.minimum(start + tap, wide - 1) * CHANNELS
        sums += weight[None, :] * tl.load(sources + at[None, :]).to(tl.int32)
    tl.store(into + rows[:, None] * (width * CHANNELS) + values[None, :], _level(sums), mask=inside)


@triton.jit(do_not_specialize=["into", "first", "high", "height", "across", "count"])
def _resize_columns(
    pixels, into, first, weights, high, height, across, count, ROWS: tl.constexpr, COLS: tl.constexpr
):  # `across` values of a row
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    values = tl.program_id(0) * COLS + tl.arange(0, COLS)
    inside = (rows[:, None] < height) & (values[None, :] < across)
    near = tl.minimum(rows, height - 1)
    start = tl.load(first + near)
    sources = pixels + tl.minimum(values, across - 1)[None, :]
    sums = tl.full([ROWS, COLS], 1 << 21, tl.int32)
    for tap in range(count):
        weight = tl.load(weights + tap * height + near)
        at = tl.minimum(start + tap, high - 1) * across
        sums += weight[:, None] * tl.load(sources + at[:, None]).to(tl.int32)
    tl.store(into + rows[:, None] * across + values[None, :], _level(sums), mask=inside)


@triton.jit
def _level(sums):
    # 22 fraction bits; the sums already include the half
    return tl.minimum(tl.maximum(sums >> 22, 0), 255).to(tl.uint8)
