"""Qwen3-VL's vision encoder: images of any size to embeddings, and to features for the text model's first layers.

h and w are an image's rows and columns of patches. N patches of all images, in the order in which they are merged;
V vision dim, H heads, D head dim, E embeddings, C the text model's dim, S sets: the embeddings and those of deepstack.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.layer_norm import add_layer_norm, layer_norm
from stoop_worker.kernels.rotate_heads import rotate_heads
from stoop_worker.kernels.vision_attention import vision_attention
from stoop_worker.models.blocks.layers import LayerNorm, linear, mlp
from stoop_worker.models.qwen_vl.config import VisionConfig
from stoop_worker.models.qwen_vl.places import Places
from stoop_worker.models.qwen_vl.weights import Merger, VisionBlock, VisionWeights

__all__ = ["encode", "grid_of", "patchify"]

_EPSILON: Final = 1e-6


def encode(
    images: Sequence[Tensor],
    places: Places,
    weights: VisionWeights,
    config: VisionConfig,
    on_progress: Callable[[], None],
) -> Tensor:
    """Encode images (height, width, 3) uint8 whose sides are multiples of the cell; returns (E, S C)."""
    patches_NK = torch.cat([patchify(image, config) for image in images]).to(weights.positions.dtype)
    x_NV = linear(patches_NK, weights.patch) + places.positions_NV
    normed_NV = _norm(x_NV, weights.blocks[0].norm1)
    norms = *(block.norm1 for block in weights.blocks[1:]), weights.merger.norm
    deep: list[Tensor] = []
    for layer, (block, following) in enumerate(zip(weights.blocks, norms, strict=True)):
        on_progress()
        attended_NV = linear(_attended(normed_NV, block, places, config), block.out)
        x_NV, normed_NV = _add_norm(x_NV, attended_NV, block.norm2)
        x_NV, normed_NV = _add_norm(x_NV, mlp(normed_NV, block.mlp), following)
        if layer in config.deep:
            merger = weights.deep[config.deep.index(layer)]
            deep.append(_merge(_norm(x_NV.view(-1, config.merged_dim), merger.norm), merger))
    return torch.cat([_merge(normed_NV.view(-1, config.merged_dim), weights.merger), *deep], dim=1)


def grid_of(height: int, width: int, config: VisionConfig) -> tuple[int, int]:
    """Return the rows and columns of patches of an image."""
    return height // config.rule.patch, width // config.rule.patch


def patchify(image: Tensor, config: VisionConfig) -> Tensor:
    """Return the patches of an image as float32 from -1 to 1: (h w, 3 patch patch), cell by cell."""
    side, merge = config.rule.patch, config.rule.merge
    scaled = (image.float() / 255 - 0.5) / 0.5
    rows, columns = (size // (merge * side) for size in image.shape[:2])
    cells = scaled.view(rows, merge, side, columns, merge, side, 3)
    # cell row, row in it, pixel row, cell column, column in it, pixel column, channel
    return cells.permute(0, 3, 1, 4, 6, 2, 5).flatten(4).flatten(0, 3)


def _attended(normed_NV: Tensor, block: VisionBlock, places: Places, config: VisionConfig) -> Tensor:
    """Let the patches of each image attend to each other; neighbours of one size go together."""
    qkv_N3HD = linear(normed_NV, block.qkv).view(len(normed_NV), 3, config.heads, -1)
    rotate_heads(qkv_N3HD, places.rotations_NF2)
    counts = [(patches, len(list(same))) for patches, same in groupby(map(prod, places.grids))]
    parts = torch.split(qkv_N3HD, [patches * images for patches, images in counts])
    found = [
        vision_attention(part.view(images, patches, *part.shape[1:]), sizes_recur=places.recur).reshape(len(part), -1)
        for part, (patches, images) in zip(parts, counts, strict=True)
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


def _merge(x_EM: Tensor, merger: Merger) -> Tensor:
    return linear(functional.gelu(linear(x_EM, merger.fc1)), merger.fc2)


def _norm(x: Tensor, norm: LayerNorm) -> Tensor:
    return layer_norm(x, norm.weight, norm.bias, epsilon=_EPSILON)


def _add_norm(x_NV: Tensor, added_NV: Tensor, norm: LayerNorm) -> tuple[Tensor, Tensor]:
    return add_layer_norm(x_NV, (added_NV,), norm.weight, norm.bias, epsilon=_EPSILON)
