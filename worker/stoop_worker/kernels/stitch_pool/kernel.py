# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Both views of several images in one launch. B images, N crops, P patches of a crop (grid²), D feature dim."""

from math import isqrt

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["global_and_local"]

_BLOCK = 256


def global_and_local(features_NPD: Tensor, tilings_B4: Tensor, *, margin: int) -> Tensor:
    """See the reference."""
    features_NPD = features_NPD.contiguous()
    patches, dim = features_NPD.shape[1:]
    images = tilings_B4.shape[0]
    views_BPD = torch.empty((images, patches, 2 * dim), dtype=features_NPD.dtype, device=features_NPD.device)
    _pool[(patches, triton.cdiv(dim, _BLOCK), images)](
        features_NPD, tilings_B4, views_BPD, GRID=isqrt(patches), D=dim, MARGIN=margin, BLOCK=_BLOCK, num_warps=1
    )
    return views_BPD


@triton.jit
def _pool(
    features, tilings, views, GRID: tl.constexpr, D: tl.constexpr, MARGIN: tl.constexpr, BLOCK: tl.constexpr
):  # one program per cell of an image and block of its features
    cell = tl.program_id(0)
    image = tl.program_id(2)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < D
    whole = tl.load(tilings + 4 * image).to(tl.int64)
    local = tl.load(tilings + 4 * image + 1).to(tl.int64)
    tile_rows = tl.load(tilings + 4 * image + 2)
    tile_cols = tl.load(tilings + 4 * image + 3)

    into = views + (image.to(tl.int64) * GRID * GRID + cell) * (2 * D)
    given = tl.load(features + (whole * GRID * GRID + cell) * D + cols, mask=inside, other=0.0)
    tl.store(into + cols, given, mask=inside)

    step: tl.constexpr = GRID - 2 * MARGIN
    high = tile_rows * step + 2 * MARGIN
    wide = tile_cols * step + 2 * MARGIN
    row = cell // GRID
    col = cell % GRID
    top = row * high // GRID
    bottom = ((row + 1) * high + GRID - 1) // GRID
    left = col * wide // GRID
    right = ((col + 1) * wide + GRID - 1) // GRID
    total = tl.zeros([BLOCK], tl.float32)
    for y in range(top, bottom):
        # the tile whose middle holds this row; at the image's edges a tile keeps its margin
        tile_row = tl.minimum(tl.maximum(y - MARGIN, 0) // step, tile_rows - 1)
        for x in range(left, right):
            tile_col = tl.minimum(tl.maximum(x - MARGIN, 0) // step, tile_cols - 1)
            patch = (y - tile_row * step) * GRID + x - tile_col * step
            start = ((local + tile_row * tile_cols + tile_col) * GRID * GRID + patch) * D
            total += tl.load(features + start + cols, mask=inside, other=0.0).to(tl.float32)
    mean = total / ((bottom - top) * (right - left)).to(tl.float32)
    tl.store(into + D + cols, mean.to(views.dtype.element_ty), mask=inside)
