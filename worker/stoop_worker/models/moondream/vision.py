"""The vision encoder, and the projection of its features to image embeddings.

N crops, P patches of a crop, H heads, D feature dim (in attention: head dim), K values of a patch, C text model dim.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from worker.images import Crops, Image, Tiling, select_tiling
from worker.kernels.patchify import patchify
from worker.kernels.stitch_pool import global_and_local
from worker.kernels.vision_attention import vision_attention
from worker.model.config import VisionConfig
from worker.model.crops import cut_on_device, send_pixels
from worker.model.layers import Rows, add_layer_norm, layer_norm_for, linear, mlp
from worker.model.weights import Attention, VisionWeights

__all__ = ["aligned", "crops_on_device", "crops_to_encode", "embeddings", "encode", "features", "project", "tiling_of"]

_CROPS_AT_ONCE = 16  # on a CPU, where more would be too long a time without a sign of life


def encode(
    images: Sequence[Crops | Image],
    weights: VisionWeights,
    config: VisionConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Encode several images at once; returns for each its embeddings (P, C). `dtype` is that of the weights."""
    if not images:
        return []
    features_NPD = features(crops_on_device(images, config, device), weights, config, dtype=dtype)
    return list(embeddings(features_NPD, images, weights, config).unbind(0))


def crops_to_encode(image: Crops | Image, config: VisionConfig) -> int:
    """Return how many of an image's crops the encoder sees: where the one local crop is the global one, only that."""
    count = tiling_of(image, config).count
    return 1 if count == 1 else 1 + count


def aligned(weights: VisionWeights) -> VisionWeights:
    """Return the weights with the rows of the first product at multiples of 16 bytes, as libraries like them best."""
    weight_DK = weights.patch_emb.weight
    grain = 16 // weight_DK.element_size()
    rows_DK = functional.pad(weight_DK, (0, -weight_DK.shape[1] % grain))[:, : weight_DK.shape[1]]
    return replace(weights, patch_emb=replace(weights.patch_emb, weight=rows_DK))


def tiling_of(image: Crops | Image, config: VisionConfig) -> Tiling:
    """Return how the local crops of an image lie, cut or to be cut."""
    if isinstance(image, Crops):
        return image.tiling
    height, width, _ = image.pixels.shape
    return select_tiling(height, width, config.geometry)


def crops_on_device(
    images: Sequence[Crops | Image], config: VisionConfig, device: torch.device, into_NHWC: Tensor | None = None
) -> Tensor:
    """Return the crops to encode of all images, (N, side, side, 3) uint8, on the device; nothing waits for it.

    Images that are whole are cut there. `into_NHWC` has room for exactly these crops, and is what is returned.
    """
    counts = [crops_to_encode(image, config) for image in images]
    if into_NHWC is None:
        shape = (sum(counts), config.crop_size, config.crop_size, config.in_channels)
        into_NHWC = torch.empty(shape, dtype=torch.uint8, device=device)
    needed = [
        image.pixels[:count] if isinstance(image, Crops) else image.pixels
        for image, count in zip(images, counts, strict=True)
    ]
    sent = send_pixels(needed, device)
    for image, pixels, crops_NHWC in zip(images, sent, torch.split(into_NHWC, counts), strict=True):
        if isinstance(image, Crops):
            crops_NHWC.copy_(pixels)
        else:
            cut_on_device(pixels, config.geometry, crops_NHWC)
    return into_NHWC


def features(
    pixels_NHWC: Tensor,
    weights: VisionWeights,
    config: VisionConfig,
    *,
    dtype: torch.dtype,
    after_block: Callable[[], None] | None = None,
) -> Tensor:
    """Run the encoder on crops (N, side, side, 3) uint8; returns features_NPD of `dtype`, that of the weights.

    `after_block` is called after each block of the encoder for each few crops, so that a caller may see it get on.
    """
    groups = [pixels_NHWC] if pixels_NHWC.is_cuda else torch.split(pixels_NHWC, _CROPS_AT_ONCE)
    found = []
    for group_NHWC in groups:
        patches_NPK = patchify(group_NHWC, config.enc_patch_size, dtype=dtype)
        # flat, or torch copies patches whose rows lie apart
        x_NPD = linear(patches_NPK.flatten(0, 1), weights.patch_emb).view(*patches_NPK.shape[:2], -1) + weights.pos_emb
        rows = layer_norm_for(weights.blocks[0].attn.qkv, x_NPD, weights.blocks[0].ln1)
        for block, following in pairwise((*weights.blocks, None)):
            assert block is not None
            attended_NPD = _attention(rows, block.attn, config.enc_n_heads)
            x_NPD, rows = add_layer_norm(x_NPD, (attended_NPD,), block.ln2, reader=block.mlp.fc1)
            norm, reader = (following.ln1, following.attn.qkv) if following else (weights.post_ln, None)
            x_NPD, rows = add_layer_norm(x_NPD, (mlp(rows, block.mlp),), norm, reader=reader)
            if after_block is not None:
                after_block()
        assert isinstance(rows, Tensor)
        found.append(rows)
    return torch.cat(found)


def embeddings(
    features_NPD: Tensor, images: Sequence[Crops | Image], weights: VisionWeights, config: VisionConfig
) -> Tensor:
    """Pool and project the features of these images' crops, in this order; returns embeddings_BPC."""
    counts = [crops_to_encode(image, config) for image in images]
    rows = [
        # an image of one crop has it as the global one and as the local one
        (first, first + (count > 1), tiling.rows, tiling.cols)
        for first, count, tiling in zip(accumulate(counts, initial=0), counts, _tilings(images, config), strict=False)
    ]
    tilings_B4 = _tilings_on_device(tuple(rows), features_NPD.device)
    return mlp(global_and_local(features_NPD, tilings_B4, margin=config.overlap_margin), weights.proj_mlp)


def project(global_PD: Tensor, local_PD: Tensor, weights: VisionWeights) -> Tensor:
    """Project the global crop's features and the pooled local ones, side by side; returns embeddings (P, C)."""
    return mlp(torch.cat((global_PD, local_PD), dim=-1), weights.proj_mlp)


@lru_cache(maxsize=512)
def _tilings_on_device(rows: tuple[tuple[int, int, int, int], ...], device: torch.device) -> Tensor:
    # kept, since images of the same sizes come again and again
    tilings_B4 = torch.tensor(rows, dtype=torch.int32, pin_memory=device.type == "cuda")
    return tilings_B4.to(device, non_blocking=True)


def _tilings(images: Sequence[Crops | Image], config: VisionConfig) -> list[Tiling]:
    return [tiling_of(image, config) for image in images]


def _attention(x_NPD: Rows, weights: Attention, heads: int) -> Tensor:
    qkv_NPC = linear(x_NPD, weights.qkv)
    qkv_NP3HD = qkv_NPC.view(*qkv_NPC.shape[:-1], 3, heads, -1)
    return linear(vision_attention(qkv_NP3HD).flatten(-2), weights.proj)
