"""The vision encoder, and the projection of its features to image embeddings.

N crops, P patches of a crop, H heads, D feature dim (in attention: head dim), K values of a patch, C text model dim.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from worker.images import Crops, Image, Tiling, select_tiling
from worker.kernels.patchify import patchify
from worker.kernels.stitch_pool import stitch_pool
from worker.kernels.vision_attention import vision_attention
from worker.model.config import VisionConfig
from worker.model.crops import cut_on_device
from worker.model.layers import Rows, add_layer_norm, layer_norm_for, linear, mlp
from worker.model.weights import Attention, VisionWeights

__all__ = ["crops_to_encode", "encode", "features", "project", "tiling_of"]

_CROPS_AT_ONCE = 16  # on a CPU, where more would be too long a time without a sign of life


def encode(
    images: Sequence[Crops | Image],
    weights: VisionWeights,
    config: VisionConfig,
    *,
    device: torch.device,
    dtype: torch.dtype,
    after_block: Callable[[], None] | None = None,
) -> list[Tensor]:
    """Encode several images at once; returns for each its embeddings (P, C). `dtype` is that of the weights.

    Those that are whole are cut into crops on the device. `after_block` is called after each block of the encoder for
    each few crops, so that a caller may see it get on.
    """
    if not images:
        return []
    pixels = [_crops_on_device(image, config, device) for image in images]
    features_NPD = features(torch.cat(pixels), weights, config, dtype=dtype, after_block=after_block)
    by_image = torch.split(features_NPD, [len(crops_NHWC) for crops_NHWC in pixels])
    tilings = [tiling_of(image, config) for image in images]
    views = [_global_and_local(own_NPD, tiling, config) for own_NPD, tiling in zip(by_image, tilings, strict=True)]
    global_BPD, local_BPD = (torch.stack(side) for side in zip(*views, strict=True))
    return list(project(global_BPD, local_BPD, weights).unbind(0))


def crops_to_encode(image: Crops | Image, config: VisionConfig) -> int:
    """Return how many of an image's crops the encoder sees: where the one local crop is the global one, only that."""
    count = tiling_of(image, config).count
    return 1 if count == 1 else 1 + count


def tiling_of(image: Crops | Image, config: VisionConfig) -> Tiling:
    """Return how the local crops of an image lie, cut or to be cut."""
    if isinstance(image, Crops):
        return image.tiling
    height, width, _ = image.pixels.shape
    return select_tiling(height, width, config.geometry)


def _crops_on_device(image: Crops | Image, config: VisionConfig, device: torch.device) -> Tensor:
    """Return the crops to encode, (N, side, side, 3) uint8, on the device; nothing waits for it."""
    if isinstance(image, Crops):
        return _to_device(image.pixels[: crops_to_encode(image, config)], device)
    return cut_on_device(_to_device(image.pixels, device), config.geometry)


def _to_device(pixels: npt.NDArray[np.uint8], device: torch.device) -> Tensor:
    if device.type != "cuda":
        return torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy())
    pinned = torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=True)
    np.copyto(pinned.numpy(), pixels)
    return pinned.to(device, non_blocking=True)


def features(
    pixels_NHWC: Tensor,
    weights: VisionWeights,
    config: VisionConfig,
    *,
    dtype: torch.dtype,
    after_block: Callable[[], None] | None = None,
) -> Tensor:
    """Run the encoder on crops (N, side, side, 3) uint8, as `encode` does; returns features_NPD of `dtype`."""
    groups = [pixels_NHWC] if pixels_NHWC.is_cuda else torch.split(pixels_NHWC, _CROPS_AT_ONCE)
    found = []
    for group_NHWC in groups:
        patches_NPK = patchify(group_NHWC, config.enc_patch_size, dtype=dtype)
        x_NPD = linear(patches_NPK, weights.patch_emb) + weights.pos_emb
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


def project(global_PD: Tensor, local_PD: Tensor, weights: VisionWeights) -> Tensor:
    """Project the global crop's features and the pooled local ones, side by side; returns embeddings (P, C)."""
    return mlp(torch.cat((global_PD, local_PD), dim=-1), weights.proj_mlp)


def _global_and_local(features_NPD: Tensor, tiling: Tiling, config: VisionConfig) -> tuple[Tensor, Tensor]:
    if len(features_NPD) == 1:
        return features_NPD[0], features_NPD[0]  # pooling a single crop changes nothing
    pooled_PD = stitch_pool(features_NPD[1:], rows=tiling.rows, cols=tiling.cols, margin=config.overlap_margin)
    return features_NPD[0], pooled_PD


def _attention(x_NPD: Rows, weights: Attention, heads: int) -> Tensor:
    qkv_NPC = linear(x_NPD, weights.qkv)
    q_NPHD, k_NPHD, v_NPHD = qkv_NPC.view(*qkv_NPC.shape[:-1], 3, heads, -1).unbind(-3)
    return linear(vision_attention(q_NPHD, k_NPHD, v_NPHD).flatten(-2), weights.proj)
