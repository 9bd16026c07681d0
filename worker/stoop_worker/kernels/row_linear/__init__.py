"""Products of one row with large weights: a decode of one sequence, bound by the time to read the weights.

    row_linear(x_BC, weight_NC, *, norm=None, added_to_BN=None, gated=False) -> y_BN

A norm before the product, and the gating or the sum after it, are part of the same launch. B rows, C columns of the
input, N of the output; letters as in `reference`. The weight is a tensor or a `BlockFp8`.
"""

from contextlib import suppress

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.block_fp8 import Weight, values_of
from stoop_worker.kernels.row_linear import reference
from stoop_worker.kernels.row_linear.reference import RowNorm

__all__ = ["RowNorm", "row_linear", "takes"]


def takes(x_BC: Tensor, weight_NC: Weight) -> bool:
    """Return whether the kernel computes this product: one row of 16-bit floats, and sizes that its blocks divide."""
    if x_BC.shape[0] != 1 or x_BC.element_size() != 2 or not uses_kernel(x_BC, values_of(weight_NC)):
        return False
    from stoop_worker.kernels.row_linear import kernel

    return kernel.divides(weight_NC)


def row_linear(
    x_BC: Tensor,
    weight_NC: Weight,
    *,
    norm: RowNorm | None = None,
    added_to_BN: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """Return the product, by the kernel if it `takes` it; see `reference.row_linear`."""
    if takes(x_BC, weight_NC):
        from stoop_worker.kernels.hopper import Unusable
        from stoop_worker.kernels.row_linear import hopper, kernel

        if hopper.takes(x_BC, weight_NC, norm, added_to_BN, gated=gated):
            with suppress(Unusable):
                return hopper.row_linear(x_BC, weight_NC, norm=norm, added_to_BN=added_to_BN, gated=gated)
        return kernel.row_linear(x_BC, weight_NC, norm=norm, added_to_BN=added_to_BN, gated=gated)
    return reference.row_linear(x_BC, weight_NC, norm=norm, added_to_BN=added_to_BN, gated=gated)
