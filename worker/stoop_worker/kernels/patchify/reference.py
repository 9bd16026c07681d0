"""Turns pixels into normalised patches. N crops, P patches of a crop, K values of a patch."""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["normalised_levels", "patchify"]


def normalised_levels(dtype: torch.dtype, device: torch.device, *, stepwise: bool = True) -> Tensor:
    """Return the normalised value of each of the 256 pixel levels: (256,) of `dtype`, from -1 to 1.

    If `stepwise`, each of the three steps rounds to `dtype`, as in Moondream's reference; else the steps are in float32
    (float64 for float64) and the last value is rounded, as in vLLM. In bfloat16 half of the levels differ.
    """
    levels = torch.arange(256, device=device).to(dtype if stepwise else torch.promote_types(dtype, torch.float32))
    # divide by a tensor, because CUDA multiplies by the reciprocal of a plain number, which rounds differently
    return ((levels / torch.full_like(levels, 255) - 0.5) / 0.5).to(dtype)


def patchify(
    pixels_NHWC: Tensor, patch_size: int, *, dtype: torch.dtype, stepwise: bool = True, columns: int | None = None
) -> Tensor:
    """Turn crops (N, side, side, 3) uint8 into patches_NPK of `dtype`, rounded as `normalised_levels` says.

    Patches go row by row; within a patch, K runs over channel, then row, then column. If `columns` is given, each patch
    has this many values, the last of them zeros.
    """
    crops, height, width, channels = pixels_NHWC.shape
    rows, cols = height // patch_size, width // patch_size
    patches = pixels_NHWC.reshape(crops, rows, patch_size, cols, patch_size, channels).permute(0, 1, 3, 5, 2, 4)
    levels_NPK = patches.reshape(crops, rows * cols, channels * patch_size**2)
    patches_NPK = normalised_levels(dtype, pixels_NHWC.device, stepwise=stepwise)[levels_NPK.int()]
    zeros = 0 if columns is None else columns - patches_NPK.shape[-1]
    return functional.pad(patches_NPK, (0, zeros)) if zeros else patches_NPK
