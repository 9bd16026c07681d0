"""Products of few rows with large weights, bound by the time to read the weights. Letters as in `reference`.

Torch computes float32 rows on every device, because the kernels of the products take only float16 and bfloat16.
"""

import torch
from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.block_fp8 import Weight, dense, values_of
from stoop_worker.kernels.linear import linear as product
from stoop_worker.kernels.skinny_linear import reference
from stoop_worker.kernels.skinny_linear.reference import NO_OTHERS, Others

__all__ = [
    "NO_OTHERS",
    "Others",
    "add_parts",
    "add_parts_layer_norm",
    "add_parts_rms_norm",
    "gated_linear",
    "linear",
    "skinny_linear",
    "split_linear",
]

_HALVES = (torch.float16, torch.bfloat16)


def skinny_linear(x_BC: Tensor, weight_NC: Tensor, bias_N: Tensor) -> Tensor:
    """Return y_BN = x W^T + b in x's dtype, summed in at least float32; any B, but fast for at most 16."""
    if x_BC.dtype in _HALVES and uses_kernel(x_BC, weight_NC, bias_N):
        from stoop_worker.kernels.skinny_linear import products

        return products.skinny_linear(x_BC, weight_NC, bias_N)
    return reference.skinny_linear(x_BC, weight_NC, bias_N)


def linear(x_TC: Tensor, weight_NC: Weight) -> Tensor:
    """Return y_TN = x W^T in x's dtype, for any number of rows.

    For few rows a float8 weight is converted while it is read; for many rows it is converted to their dtype first.
    """
    if isinstance(weight_NC, Tensor):
        return product(x_TC, weight_NC)
    if x_TC.dtype in _HALVES and uses_kernel(x_TC):
        from stoop_worker.kernels.skinny_linear import products

        return products.skinny_linear(x_TC, weight_NC)
    return product(x_TC, dense(weight_NC, x_TC.dtype))


def gated_linear(x_BC: Tensor, weight_NC: Weight) -> Tensor:
    """Return silu(gate) * up of a product with a weight of gates and ups; see `reference.gated_linear`."""
    if x_BC.dtype in _HALVES and uses_kernel(x_BC, values_of(weight_NC)):
        from stoop_worker.kernels.skinny_linear import products

        return products.gated_linear(x_BC, weight_NC)
    return reference.gated_linear(x_BC, weight_NC)


def split_linear(x_BK: Tensor, weight_NK: Weight) -> Tensor:
    """Return parts_SBN, float32 (float64 for float64), whose sum over S is x W^T; any B, but fast for at most 64.

    The number of parts depends on all shapes; `add_parts` and `add_parts_layer_norm` take any number.
    """
    if x_BK.dtype in _HALVES and uses_kernel(x_BK, values_of(weight_NK)):
        from stoop_worker.kernels.skinny_linear import products

        return products.split_linear(x_BK, weight_NK)
    return reference.split_linear(x_BK, weight_NK)


def add_parts(
    x_BC: Tensor, parts_SBC: Tensor, added_bias_C: Tensor | None = None, *, others: Others = NO_OTHERS
) -> Tensor:
    """Return sum_BC = x + (all parts + any bias + all other terms), in x's dtype.

    `reference.add_parts` defines the rounding.
    """
    if uses_kernel(x_BC, parts_SBC):
        from stoop_worker.kernels.skinny_linear import sums

        return sums.add_parts(x_BC, parts_SBC, added_bias_C, others=others)
    return reference.add_parts(x_BC, parts_SBC, added_bias_C, others=others)


def add_parts_layer_norm(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    others: Others = NO_OTHERS,
) -> tuple[Tensor, Tensor]:
    """Return sum_BC as by `add_parts`, and its layer norm, both in x's dtype."""
    if uses_kernel(x_BC, parts_SBC, added_bias_C, weight_C, bias_C):
        from stoop_worker.kernels.skinny_linear import sums

        return sums.add_parts_layer_norm(x_BC, parts_SBC, added_bias_C, weight_C, bias_C, others=others)
    return reference.add_parts_layer_norm(x_BC, parts_SBC, added_bias_C, weight_C, bias_C, others=others)


def add_parts_rms_norm(x_BC: Tensor, parts_SBC: Tensor, weight_C: Tensor, *, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return sum_BC as by `add_parts`, and its RMS norm, both in x's dtype."""
    if uses_kernel(x_BC, parts_SBC, weight_C):
        from stoop_worker.kernels.skinny_linear import sums

        return sums.add_parts_rms_norm(x_BC, parts_SBC, weight_C, epsilon=epsilon)
    return reference.add_parts_rms_norm(x_BC, parts_SBC, weight_C, epsilon=epsilon)
