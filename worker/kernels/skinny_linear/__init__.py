"""Products of few rows with large weights, which are bound by reading the weights. Letters as in `reference`.

Float32 rows go to torch on every device: the products' kernels are for float16 and bfloat16.
"""

import torch
from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.skinny_linear import reference

__all__ = ["add_parts", "add_parts_layer_norm", "skinny_linear", "split_linear"]

_HALVES = (torch.float16, torch.bfloat16)


def skinny_linear(x_BC: Tensor, weight_NC: Tensor, bias_N: Tensor) -> Tensor:
    """Return y_BN = x W^T + b in x's dtype, summed in at least float32; any B, but made for at most 16."""
    if x_BC.dtype in _HALVES and uses_kernel(x_BC, weight_NC, bias_N):
        from worker.kernels.skinny_linear import products

        return products.skinny_linear(x_BC, weight_NC, bias_N)
    return reference.skinny_linear(x_BC, weight_NC, bias_N)


def split_linear(x_BK: Tensor, weight_NK: Tensor) -> Tensor:
    """Return parts_SBN, whose sum over S is x W^T: float32, float64 for float64; any B, but made for at most 64.

    How many parts there are depends on all shapes; `add_parts` and `add_parts_layer_norm` take any number.
    """
    if x_BK.dtype in _HALVES and uses_kernel(x_BK, weight_NK):
        from worker.kernels.skinny_linear import products

        return products.split_linear(x_BK, weight_NK)
    return reference.split_linear(x_BK, weight_NK)


def add_parts(x_BC: Tensor, parts_SBC: Tensor, added_bias_C: Tensor) -> Tensor:
    """Return sum_BC = x + (all parts + bias), in x's dtype; see `reference.add_parts` for where it is rounded."""
    if uses_kernel(x_BC, parts_SBC, added_bias_C):
        from worker.kernels.skinny_linear import sums

        return sums.add_parts(x_BC, parts_SBC, added_bias_C)
    return reference.add_parts(x_BC, parts_SBC, added_bias_C)


def add_parts_layer_norm(
    x_BC: Tensor, parts_SBC: Tensor, added_bias_C: Tensor, weight_C: Tensor, bias_C: Tensor
) -> tuple[Tensor, Tensor]:
    """Return sum_BC as `add_parts` does, and its layer norm, both in x's dtype."""
    if uses_kernel(x_BC, parts_SBC, added_bias_C, weight_C, bias_C):
        from worker.kernels.skinny_linear import sums

        return sums.add_parts_layer_norm(x_BC, parts_SBC, added_bias_C, weight_C, bias_C)
    return reference.add_parts_layer_norm(x_BC, parts_SBC, added_bias_C, weight_C, bias_C)
