"""Averages the features of local crops into one grid of the global crop's size.

L local crops, P patches of a crop (grid²), D feature dim, Y and X the stitched grid's rows and columns; B images,
N crops of all images.
"""

from math import isqrt

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["global_and_local", "pool", "stitch", "stitch_pool"]


def stitch(features_LPD: Tensor, *, rows: int, cols: int, margin: int) -> Tensor:
    """Lay rows x cols overlapping crops out as one image; returns stitched_YXD.

    Where crops overlap, each drops its outer `margin` patches; at the image's edges it keeps them.
    """
    grid = isqrt(features_LPD.shape[1])
    tiles = features_LPD.reshape(-1, grid, grid, features_LPD.shape[-1])
    bands = []
    for row in range(rows):
        top, bottom = _kept(row, rows, grid, margin)
        band = [tiles[row * cols + col, top:bottom, slice(*_kept(col, cols, grid, margin))] for col in range(cols)]
        bands.append(torch.cat(band, dim=1))
    return torch.cat(bands, dim=0)


def pool(stitched_YXD: Tensor, grid: int) -> Tensor:
    """Average a stitched grid down to grid x grid cells; returns pooled_PD.

    Cell p of an axis of n averages indices floor(p n / grid) up to ceil((p + 1) n / grid): windows may overlap.
    """
    pooled_Dgg = functional.adaptive_avg_pool2d(stitched_YXD.permute(2, 0, 1), grid)
    return pooled_Dgg.flatten(1).transpose(0, 1)


def stitch_pool(features_LPD: Tensor, *, rows: int, cols: int, margin: int) -> Tensor:
    """Stitch, then pool: the local view of one image, as pooled_PD."""
    stitched_YXD = stitch(features_LPD, rows=rows, cols=cols, margin=margin)
    return pool(stitched_YXD, isqrt(features_LPD.shape[1]))


def global_and_local(features_NPD: Tensor, tilings_B4: Tensor, *, margin: int) -> Tensor:
    """Lay each image's global features and its pooled local ones side by side: views (B, P, 2 D).

    A row of `tilings_B4` int32 describes an image: the index of its global crop, of its first local crop, rows, cols.
    The two indices are equal if the global crop is the only local one.
    """
    views = []
    for whole, first, rows, cols in tilings_B4.tolist():
        local_LPD = features_NPD[first : first + rows * cols]
        local_PD = stitch_pool(local_LPD, rows=rows, cols=cols, margin=margin)
        views.append(torch.cat((features_NPD[whole], local_PD), dim=-1))
    return torch.stack(views)


def _kept(index: int, count: int, grid: int, margin: int) -> tuple[int, int]:
    return (0 if index == 0 else margin), (grid if index == count - 1 else grid - margin)
