# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Turns pixels into normalised patches in one pass. N crops, P patches of a crop, K values of a patch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["patchify"]

_BLOCK = 2048


def patchify(pixels_NHWC: Tensor, patch_size: int, *, dtype: torch.dtype, columns: int | None = None) -> Tensor:
    """See the reference; the result is bit-identical. `dtype` has at most 32 bits."""
    pixels_NHWC = pixels_NHWC.contiguous()
    crops, height, width, channels = pixels_NHWC.shape
    rows, cols = height // patch_size, width // patch_size
    values = channels * patch_size**2
    columns = values if columns is None else columns
    patches_NPK = torch.empty((crops, rows * cols, columns), dtype=dtype, device=pixels_NHWC.device)
    _patchify[(triton.cdiv(rows * cols * columns, _BLOCK), crops)](
        pixels_NHWC,
        patches_NPK,
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        PATCH=patch_size,
        ROWS=rows,
        COLS=cols,
        TOTAL=columns,
        BLOCK=_BLOCK,
        num_warps=4,
    )
    return patches_NPK


@triton.jit
def _patchify(
    pixels,
    patches,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PATCH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TOTAL: tl.constexpr,
    BLOCK: tl.constexpr,
):  # one program per run of a crop's values, in output order
    crop = tl.program_id(1).to(tl.int64)
    count: tl.constexpr = ROWS * COLS * TOTAL
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = place % TOTAL
    inside = (place < count) & (at < CHANNELS * PATCH * PATCH)
    x = at % PATCH
    y = at // PATCH % PATCH
    channel = at // (PATCH * PATCH)
    patch = place // TOTAL
    row = patch // COLS * PATCH + y
    col = patch % COLS * PATCH + x
    source = pixels + crop * (HEIGHT * WIDTH * CHANNELS) + (row * WIDTH + col) * CHANNELS + channel
    value = tl.load(source, mask=inside, other=0).to(tl.float32)
    # each step rounds to the dtype, as in the reference; doubling is exact
    dtype = patches.dtype.element_ty
    value = tl.div_rn(value, tl.full([BLOCK], 255.0, tl.float32)).to(dtype).to(tl.float32)
    value = (value - 0.5).to(dtype).to(tl.float32) * 2.0
    tl.store(patches + crop * count + place, tl.where(inside, value, 0.0).to(dtype), mask=place < count)
