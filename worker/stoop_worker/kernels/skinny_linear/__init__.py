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
    "gated_mlp",
    "linear",
    "rows_dtype",
    "skinny_linear",
    "split_linear",
]

_HALVES = (torch.float16, torch.bfloat16)


def skinny_linear(x_BC: Tensor, weight_NC: Tensor, bias_N: Tensor, *, in_line: bool = False) -> Tensor:
    """Return y_BN = x W^T + b in x's dtype, summed in at least float32; any B, but fast for at most 16.

    `in_line` is as for `split_linear`. It makes up to 64 rows fast.
    """
    if x_BC.dtype in _HALVES and uses_kernel(x_BC, weight_NC, bias_N):
        from stoop_worker.kernels.skinny_linear import products

        return products.skinny_linear(x_BC, weight_NC, bias_N, in_line=in_line)
    return reference.skinny_linear(x_BC, weight_NC, bias_N)


def linear(x_TC: Tensor, weight_NC: Weight, *, dtype: torch.dtype | None = None, in_line: bool = False) -> Tensor:
    """Return y_TN = x W^T in `dtype`, by default x's, for any number of rows; `in_line` as for `split_linear`.

    For few rows a float8 weight is converted while it is read; for many rows it is converted to their dtype first.
    """
    if x_TC.dtype in _HALVES and uses_kernel(x_TC, values_of(weight_NC)):
        from stoop_worker.kernels.skinny_linear import products

        return products.linear(x_TC, weight_NC, dtype=dtype, in_line=in_line)
    weight_NC = weight_NC if isinstance(weight_NC, Tensor) else dense(weight_NC, x_TC.dtype)
    return product(x_TC, weight_NC).to(dtype or x_TC.dtype)


def rows_dtype(x_BC: Tensor, *weights: Weight) -> torch.dtype:
    """Return the dtype in which a step should store the rows that it multiplies with these weights, x's or float16.

    A float8 value takes fewer instructions to convert to float16 than to bfloat16, and a row in float16 has more
    digits. Its values end at 65,504, which suits what a norm or attention returns.
    """
    if x_BC.dtype in _HALVES and uses_kernel(x_BC):
        from stoop_worker.kernels.skinny_linear import products

        return products.rows_dtype(x_BC, weights)
    return x_BC.dtype


def gated_mlp(x_BC: Tensor, gate_up_NC: Weight, down_CF: Weight) -> Tensor:
    """Return `split_linear` of silu(x G^T) * (x U^T), where the rows of the first weight are G, then U.

    `reference.gated_mlp` defines the rounding.
    """
    if x_BC.dtype in _HALVES and uses_kernel(x_BC, values_of(gate_up_NC), values_of(down_CF)):
        from stoop_worker.kernels.skinny_linear import products

        return products.gated_mlp(x_BC, gate_up_NC, down_CF)
    return reference.gated_mlp(x_BC, gate_up_NC, down_CF)


def split_linear(x_BK: Tensor, weight_NK: Weight, *, in_line: bool = False) -> Tensor:
    """Return parts_SBN, float32 (float64 for float64), whose sum over S is x W^T; any B, but fast for at most 64.

    The number of parts depends on all shapes; `add_parts` and `add_parts_layer_norm` take any number. `in_line` tells
    that this is part of a step whose kernels all start early, one after the other. No branch ends or begins before it.
    """
    if x_BK.dtype in _HALVES and uses_kernel(x_BK, values_of(weight_NK)):
        from stoop_worker.kernels.skinny_linear import products

        return products.split_linear(x_BK, weight_NK, in_line=in_line)
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


def add_parts_rms_norm(
    x_BC: Tensor, parts_SBC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return sum_BC as by `add_parts`, in x's dtype, and its RMS norm, in `dtype`, by default the same."""
    if uses_kernel(x_BC, parts_SBC, weight_C):
        from stoop_worker.kernels.skinny_linear import sums

        return sums.add_parts_rms_norm(x_BC, parts_SBC, weight_C, epsilon=epsilon, dtype=dtype)
    return reference.add_parts_rms_norm(x_BC, parts_SBC, weight_C, epsilon=epsilon, dtype=dtype)
