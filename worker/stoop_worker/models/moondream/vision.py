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

from stoop_worker.images import Crops, Jpeg, Picture, Tiling, select_tiling
from stoop_worker.kernels.fp8 import Fp8Linear
from stoop_worker.kernels.layer_norm import norm_of_sum
from stoop_worker.kernels.patchify import patchify
from stoop_worker.kernels.stitch_pool import global_and_local
from stoop_worker.kernels.vision_attention import vision_attention, vision_attention_fp8
from stoop_worker.models.blocks.layers import Fp8Rows, Rows, add_layer_norm, linear, mlp
from stoop_worker.models.blocks.pixels import send_pixels
from stoop_worker.models.moondream.config_parts import VisionConfig
from stoop_worker.models.moondream.crops import cut_on_device
from stoop_worker.models.moondream.weights import Attention, VisionWeights

__all__ = ["aligned", "crops_on_device", "crops_to_encode", "embeddings", "features", "tiling_of"]

_CROPS_AT_ONCE = 16  # on a CPU, where a larger batch would take too long between progress reports


def crops_to_encode(image: Picture, config: VisionConfig) -> int:
    """Return the number of crops to encode: one if the only local crop equals the global one."""
    count = tiling_of(image, config).count
    return 1 if count == 1 else 1 + count


def aligned(weights: VisionWeights) -> VisionWeights:
    """Return the weights with zeros behind the first product's rows, up to a multiple of 16 bytes.

    Libraries take a slow kernel for other sizes, even if the rows begin at such multiples.
    """
    weight_DK = weights.patch_emb.weight
    grain = 16 // weight_DK.element_size()
    rows_DK = functional.pad(weight_DK, (0, -weight_DK.shape[1] % grain))
    return replace(weights, patch_emb=replace(weights.patch_emb, weight=rows_DK))


def tiling_of(image: Picture, config: VisionConfig) -> Tiling:
    """Return the grid of an image's local crops, whether the image is already cut or not."""
    if isinstance(image, Crops):
        return image.tiling
    return select_tiling(*image.size, config.geometry)


def crops_on_device(
    images: Sequence[Picture], config: VisionConfig, device: torch.device, into_NHWC: Tensor | None = None
) -> Tensor:
    """Return all images' crops to encode, (N, side, side, 3) uint8, on the device, without waiting for the device.

    Whole images are cut on the device, and JPEGs decoded there. `into_NHWC` has room for exactly these crops; if given,
    it is returned.
    """
    counts = [crops_to_encode(image, config) for image in images]
    if into_NHWC is None:
        shape = (sum(counts), config.crop_size, config.crop_size, config.in_channels)
        into_NHWC = torch.empty(shape, dtype=torch.uint8, device=device)
    needed = [
        image if isinstance(image, Jpeg) else image.pixels[:count] if isinstance(image, Crops) else image.pixels
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
    into_NPD: Tensor | None = None,
) -> Tensor:
    """Run the encoder on crops (N, side, side, 3) uint8; returns features_NPD of `dtype`, that of the weights.

    `after_block` is called after each encoder block of each batch of crops, so that a caller can follow the progress.
    If `into_NPD` is given, it receives the features.
    """
    groups = [pixels_NHWC] if pixels_NHWC.is_cuda else torch.split(pixels_NHWC, _CROPS_AT_ONCE)
    first, last, found = weights.blocks[0], weights.post_ln, []
    for group_NHWC in groups:
        stepwise, columns = config.normalise == "stepwise", weights.patch_emb.weight.shape[1]
        patches_NPK = patchify(group_NHWC, config.enc_patch_size, dtype=dtype, stepwise=stepwise, columns=columns)
        x_NPD, added_NPD = linear(patches_NPK, weights.patch_emb), weights.pos_emb
        x_NPD, rows = add_layer_norm(x_NPD, (added_NPD,), first.ln1, reader=first.attn.qkv)
        for block, following in pairwise((*weights.blocks, None)):
            assert block is not None
            attended_NPD = _attention(rows, block.attn, config.enc_n_heads)
            x_NPD, rows = add_layer_norm(x_NPD, (attended_NPD,), block.ln2, reader=block.mlp.fc1)
            added_NPD = mlp(rows, block.mlp)
            if following is not None:
                x_NPD, rows = add_layer_norm(x_NPD, (added_NPD,), following.ln1, reader=following.attn.qkv)
            if after_block is not None:
                after_block()
        into = into_NPD if len(groups) == 1 else None
        found.append(norm_of_sum(x_NPD, (added_NPD,), last.weight, last.bias, into_TC=into))
    return found[0] if len(found) == 1 else torch.cat(found, out=into_NPD)


def embeddings(features_NPD: Tensor, images: Sequence[Picture], weights: VisionWeights, config: VisionConfig) -> Tensor:
    """Pool and project the features of these images' crops, in this order; returns embeddings_BPC."""
    counts = [crops_to_encode(image, config) for image in images]
    rows = [
        # an image of one crop uses it as the global and the local crop
        (first, first + (count > 1), tiling.rows, tiling.cols)
        for first, count, tiling in zip(accumulate(counts, initial=0), counts, _tilings(images, config), strict=False)
    ]
    tilings_B4 = _tilings_on_device(tuple(rows), features_NPD.device)
    return mlp(global_and_local(features_NPD, tilings_B4, margin=config.overlap_margin), weights.proj_mlp)


@lru_cache(maxsize=512)
def _tilings_on_device(rows: tuple[tuple[int, int, int, int], ...], device: torch.device) -> Tensor:
    # cached, because image sizes repeat
    tilings_B4 = torch.tensor(rows, dtype=torch.int32, pin_memory=device.type == "cuda")
    return tilings_B4.to(device, non_blocking=True)


def _tilings(images: Sequence[Picture], config: VisionConfig) -> list[Tiling]:
    return [tiling_of(image, config) for image in images]


def _attention(x_NPD: Rows, weights: Attention, heads: int) -> Tensor:
    qkv_NPC = linear(x_NPD, weights.qkv)
    qkv_NP3HD = qkv_NPC.view(*qkv_NPC.shape[:-1], 3, heads, -1)
    proj = weights.proj
    if isinstance(proj, Fp8Linear) and proj.rows is not None:
        attended_NPC = vision_attention_fp8(qkv_NP3HD, proj.rows).flatten(-2)
        return linear(Fp8Rows(attended_NPC, proj.rows.scale_11), proj)
    return linear(vision_attention(qkv_NP3HD).flatten(-2), proj)
