"""Qwen3-VL's vision encoder: images of any size to embeddings, and to features for the text model's first layers.

h and w are an image's rows and columns of patches. N patches of all images, in the order in which they are merged;
V vision dim, H heads, D head dim, E embeddings, C the text model's dim, S sets: the embeddings and those of deepstack.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.models.blocks.layers import LayerNorm, linear
from stoop_worker.models.qwen_vl.config import VisionConfig
from stoop_worker.models.qwen_vl.weights import Merger, VisionBlock, VisionWeights

__all__ = ["encode", "patchify"]

_EPSILON: Final = 1e-6
_THETA: Final = 10_000.0

_Grids = Sequence[tuple[int, int]]


def encode(
    images: Sequence[Tensor], weights: VisionWeights, config: VisionConfig, on_progress: Callable[[], None]
) -> Tensor:
    """Encode images (height, width, 3) uint8 whose sides are multiples of the cell; returns (E, S C)."""
    rule, dtype = config.rule, weights.positions.dtype
    grids = [(image.shape[0] // rule.patch, image.shape[1] // rule.patch) for image in images]
    patches_NK = torch.cat([patchify(image, config) for image in images]).to(dtype)
    positions_NV = torch.cat([_positions(grid, weights.positions, config) for grid in grids])
    x_NV = linear(patches_NK, weights.patch) + positions_NV
    rotation_ND = _rotation(grids, config, x_NV.device)
    deep: list[Tensor] = []
    for layer, block in enumerate(weights.blocks):
        on_progress()
        x_NV = _block(x_NV, block, grids, rotation_ND, config)
        if layer in config.deep:
            merger = weights.deep[config.deep.index(layer)]
            deep.append(_merge(_norm(x_NV.view(-1, config.merged_dim), merger.norm), merger))
    normed_NV = _norm(x_NV, weights.merger.norm)
    return torch.cat([_merge(normed_NV.view(-1, config.merged_dim), weights.merger), *deep], dim=1)


def patchify(image: Tensor, config: VisionConfig) -> Tensor:
    """Return the patches of an image as float32 from -1 to 1: (h w, 3 patch patch), cell by cell."""
    side, merge = config.rule.patch, config.rule.merge
    scaled = (image.float() / 255 - 0.5) / 0.5
    rows, columns = (size // (merge * side) for size in image.shape[:2])
    cells = scaled.view(rows, merge, side, columns, merge, side, 3)
    # cell row, row in it, pixel row, cell column, column in it, pixel column, channel
    return cells.permute(0, 3, 1, 4, 6, 2, 5).flatten(4).flatten(0, 3)


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


def _rotation(grids: _Grids, config: VisionConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of all patches, (N, 1, 1, D) float32: half the angles by row, half by column."""
    quarter = config.dim // config.heads // 4
    speeds = _THETA ** (-torch.arange(quarter, dtype=torch.float32, device=device) / quarter)
    angles = []
    for rows, columns in grids:
        row, column = torch.meshgrid(
            torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij"
        )
        places_N2 = _by_cell(torch.stack((row, column), dim=-1), config)
        angles.append((places_N2[:, :, None] * speeds).flatten(1))
    angles_ND = torch.cat(angles).repeat(1, 2)[:, None, None]
    return angles_ND.cos(), angles_ND.sin()


def _block(
    x_NV: Tensor, block: VisionBlock, grids: _Grids, rotation_ND: tuple[Tensor, Tensor], config: VisionConfig
) -> Tensor:
    qkv_N3HD = linear(_norm(x_NV, block.norm1), block.qkv).view(len(x_NV), 3, config.heads, -1)
    q_NHD, k_NHD = _rotated(qkv_N3HD[:, :2], rotation_ND).unbind(1)
    attended_NV = torch.cat(list(_attended(q_NHD, k_NHD, qkv_N3HD[:, 2], grids)))
    x_NV = x_NV + linear(attended_NV, block.out)
    inner_NF = functional.gelu(linear(_norm(x_NV, block.norm2), block.fc1), approximate="tanh")
    return x_NV + linear(inner_NF, block.fc2)


def _attended(q_NHD: Tensor, k_NHD: Tensor, v_NHD: Tensor, grids: _Grids) -> Iterator[Tensor]:
    """Let the patches of each image attend to each other."""
    start = 0
    for rows, columns in grids:
        end = start + rows * columns
        q, k, v = (part[start:end].transpose(0, 1)[None] for part in (q_NHD, k_NHD, v_NHD))
        yield functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)
        start = end


def _rotated(x_N2HD: Tensor, rotation_ND: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate q and k."""
    cos, sin = rotation_ND
    one, two = x_N2HD.float().chunk(2, dim=-1)
    return (x_N2HD.float() * cos + torch.cat((-two, one), dim=-1) * sin).to(x_N2HD.dtype)


def _merge(x_EM: Tensor, merger: Merger) -> Tensor:
    return linear(functional.gelu(linear(x_EM, merger.fc1)), merger.fc2)


def _norm(x: Tensor, norm: LayerNorm) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, _EPSILON)
