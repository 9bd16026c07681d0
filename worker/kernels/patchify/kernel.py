# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Pixels to normalised patches in one pass. N crops, P patches of a crop, K values of a patch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["patchify"]

_BLOCK = 2048


def patchify(pixels_NHWC: Tensor, patch_size: int, *, dtype: torch.dtype) -> Tensor:
    """See the reference; equal to it to the bit. `dtype` has at most 32 bits."""
    pixels_NHWC = pixels_NHWC.contiguous()
    crops, height, width, channels = pixels_NHWC.shape
    rows, cols = height // patch_size, width // patch_size
    shape = (crops, rows * cols, channels * patch_size**2)
    patches_NPK = torch.empty(shape, dtype=dtype, device=pixels_NHWC.device)
    _patchify[(triton.cdiv(shape[1] * shape[2], _BLOCK), crops)](
        pixels_NHWC,
        patches_NPK,
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=channels,
        PATCH=patch_size,
        ROWS=rows,
        COLS=cols,
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
    BLOCK: tl.constexpr,
):  # one program a run of a crop's values, in the order they are written
    crop = tl.program_id(1).to(tl.int64)
    count: tl.constexpr = ROWS * COLS * CHANNELS * PATCH * PATCH
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = at % PATCH
    y = at // PATCH % PATCH
    channel = at // (PATCH * PATCH) % CHANNELS
    patch = at // (PATCH * PATCH * CHANNELS)
    row = patch // COLS * PATCH + y
    col = patch % COLS * PATCH + x
    source = pixels + crop * (HEIGHT * WIDTH * CHANNELS) + (row * WIDTH + col) * CHANNELS + channel
    value = tl.load(source, mask=at < count, other=0).to(tl.float32)
    # each step rounds to the dtype, as the reference's do; doubling is exact
    dtype = patches.dtype.element_ty
    value = tl.div_rn(value, tl.full([BLOCK], 255.0, tl.float32)).to(dtype).to(tl.float32)
    value = (value - 0.5).to(dtype).to(tl.float32) * 2.0
    tl.store(patches + crop * count + at, value.to(dtype), mask=at < count)
