"""Turns pixels into normalised patches. N crops, P patches of a crop, K values of a patch."""

import torch
from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.patchify import reference
from stoop_worker.kernels.patchify.reference import normalised_levels

__all__ = ["normalised_levels", "patchify"]


def patchify(
    pixels_NHWC: Tensor, patch_size: int, *, dtype: torch.dtype, stepwise: bool = True, columns: int | None = None
) -> Tensor:
    """Turn crops (N, side, side, 3) uint8 into patches_NPK of `dtype`; see `reference.patchify`.

    The kernel rounds `stepwise` alone.
    """
    if uses_kernel(pixels_NHWC) and dtype != torch.float64 and stepwise:
        from stoop_worker.kernels.patchify.kernel import patchify as launch

        return launch(pixels_NHWC, patch_size, dtype=dtype, columns=columns)
    return reference.patchify(pixels_NHWC, patch_size, dtype=dtype, stepwise=stepwise, columns=columns)
