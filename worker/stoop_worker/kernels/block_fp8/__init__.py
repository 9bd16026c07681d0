"""Linear layers with block-wise float8 weights, which stay in float8 in memory.

    linear(x_TC, weight) -> y_TN
    dense(weight, dtype) -> weight_NC

A `Weight` is a tensor (N, C) or a `BlockFp8`. T rows, C columns of the input, N of the output. Few rows are multiplied
with the weights as they are read; for many rows the weight is converted to the rows' dtype first, product by product.
`row_linear` and `skinny_linear` take a `Weight` too.
"""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.block_fp8 import reference
from stoop_worker.kernels.block_fp8.reference import BlockFp8, Weight, joined, values_of

__all__ = ["MOST_ROWS", "BlockFp8", "Weight", "dense", "joined", "linear", "values_of"]

MOST_ROWS = 64
"""The kernel for few rows reads a weight once for up to so many rows."""


def linear(x_TC: Tensor, weight: Weight) -> Tensor:
    """Return y_TN = x W^T in x's dtype."""
    if isinstance(weight, Tensor):
        return functional.linear(x_TC, weight)
    if x_TC.shape[0] <= MOST_ROWS and x_TC.element_size() == 2 and uses_kernel(x_TC):
        from stoop_worker.kernels.skinny_linear import products

        return products.skinny_linear(x_TC, weight)
    return functional.linear(x_TC, dense(weight, x_TC.dtype))


def dense(weight: BlockFp8, dtype: torch.dtype) -> Tensor:
    """Return values * scales, rounded to `dtype`; see `reference.dense`."""
    if uses_kernel(weight.values_NC):
        from stoop_worker.kernels.block_fp8 import kernel

        return kernel.dense(weight, dtype)
    return reference.dense(weight, dtype)
