"""Weights in float8 with a scale for each square block, which stay so in memory.

    dense(weight, dtype) -> weight_NC

A `Weight` is a tensor (N, C) or a `BlockFp8`. C columns of the input of a linear layer, N of its output. The products
of `row_linear` and `skinny_linear` take a `Weight`.
"""

import torch
from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.block_fp8 import reference
from stoop_worker.kernels.block_fp8.reference import BlockFp8, Weight, joined, values_of

__all__ = ["BlockFp8", "Weight", "dense", "joined", "values_of"]


def dense(weight: BlockFp8, dtype: torch.dtype) -> Tensor:
    """Return values * scales, rounded to `dtype`; see `reference.dense`."""
    if uses_kernel(weight.values_NC):
        from stoop_worker.kernels.block_fp8 import kernel

        return kernel.dense(weight, dtype)
    return reference.dense(weight, dtype)
