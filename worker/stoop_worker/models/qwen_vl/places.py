"""The places of an image's patches, which depend on its size alone: learned positions, and the angles of attention.

h and w are an image's rows and columns of patches. N patches of all images, in the order in which they are merged;
V vision dim, F frequencies, half a head's channels.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from stoop_worker.models.qwen_vl.config import VisionConfig

__all__ = ["Grids", "Places", "places_of"]

_THETA: Final = 10_000.0

Grids = Sequence[tuple[int, int]]
"""The rows and columns of the patches of images."""


class Places(NamedTuple):
    """The images' `grids`, the positions of all patches (N, V), and their cosines and sines (N, F, 2) float32.

    `recur` is True if more images of these sizes are expected.
    """

    grids: Grids
    positions_NV: Tensor
    rotations_NF2: Tensor
    recur: bool


def places_of(grids: Grids, table: Tensor, config: VisionConfig, *, recur: bool) -> Places:
    """Return the places of images; `table` has the learned positions."""
    positions_NV = torch.cat([_positions(grid, table, config) for grid in grids])
    return Places(grids, positions_NV, _rotations(grids, config, table), recur)


def _by_cell(x_hwV: Tensor, config: VisionConfig) -> Tensor:
    """Put rows and columns of patches into the order in which they are merged."""
    merge = config.rule.merge
    rows, columns = (size // merge for size in x_hwV.shape[:2])
    cells = x_hwV.reshape(rows, merge, columns, merge, -1)
    return cells.transpose(1, 2).flatten(0, 3)


def _positions(grid: tuple[int, int], table: Tensor, config: VisionConfig) -> Tensor:
    """Resample the learned positions bilinearly, corner to corner; returns (h w, V)."""
    rows, columns = (
        torch.linspace(0, config.grid - 1, count, dtype=torch.float32, device=table.device) for count in grid
    )
    table_GGV = table.float().view(config.grid, config.grid, -1)
    top, left = rows.long(), columns.long()
    bottom, right = (top + 1).clamp(max=config.grid - 1), (left + 1).clamp(max=config.grid - 1)
    down, across = (rows - top)[:, None, None], (columns - left)[None, :, None]
    upper = table_GGV[top][:, left] * (1 - across) + table_GGV[top][:, right] * across
    lower = table_GGV[bottom][:, left] * (1 - across) + table_GGV[bottom][:, right] * across
    return _by_cell(upper * (1 - down) + lower * down, config).to(table.dtype)


def _rotations(grids: Grids, config: VisionConfig, like: Tensor) -> Tensor:
    """Return the cosines and sines of all patches: half of the frequencies turn by row, half by column."""
    quarter = config.dim // config.heads // 4
    dtype, device = torch.promote_types(like.dtype, torch.float32), like.device
    speeds = _THETA ** (-torch.arange(quarter, dtype=dtype, device=device) / quarter)
    angles = []
    for rows, columns in grids:
        row, column = torch.meshgrid(
            torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
        )
        places_N2 = _by_cell(torch.stack((row, column), dim=-1), config)
        angles.append((places_N2[:, :, None] * speeds).flatten(1))
    angles_NF = torch.cat(angles)
    return torch.stack((angles_NF.cos(), angles_NF.sin()), dim=-1)
