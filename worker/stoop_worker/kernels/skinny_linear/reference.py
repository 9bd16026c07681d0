"""Products of few rows, whole or in parts for the next step to add up.

B rows, C model dim, K columns of a product's input, N of its output, S parts of a sum over K, F gates.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8.reference import Weight
from stoop_worker.kernels.block_fp8.reference import wide as widened
from stoop_worker.kernels.layer_norm.reference import layer_norm
from stoop_worker.kernels.linear import linear
from stoop_worker.kernels.moe import ExpertOutputs
from stoop_worker.kernels.moe.reference import combine
from stoop_worker.kernels.rms_norm.reference import rms_norm
from stoop_worker.kernels.swiglu.reference import swiglu

__all__ = [
    "NO_OTHERS",
    "Others",
    "add_parts",
    "add_parts_layer_norm",
    "add_parts_rms_norm",
    "gated_linear",
    "gated_mlp",
    "skinny_linear",
    "split_linear",
]


class Others(NamedTuple):
    """Terms of a sum beside the parts of a product: the outputs of experts, and corrections in float32.

    If a `joined` branch computed some of the terms concurrently, the sum waits for two kernels.
    """

    experts: ExpertOutputs | None = None
    corrections_BC: Tensor | None = None
    joined: bool = False


NO_OTHERS = Others()
"""No terms beside the parts."""


def skinny_linear(x_BC: Tensor, weight_NC: Tensor, bias_N: Tensor) -> Tensor:
    """Return y_BN = x W^T + b in x's dtype, summed in at least float32."""
    return linear(x_BC, weight_NC, bias_N)


def gated_linear(x_BC: Tensor, weight_NC: Weight) -> Tensor:
    """Return silu(x G^T) * (x U^T), (B, F), in x's dtype, where the 2 F rows of the weight are G, then U.

    It is computed in at least float32, and rounded once.
    """
    wide = torch.promote_types(x_BC.dtype, torch.float32)
    return swiglu(linear(x_BC.to(wide), widened(weight_NC, wide))).to(x_BC.dtype)


def gated_mlp(x_BC: Tensor, gate_up_NC: Weight, down_CF: Weight) -> Tensor:
    """Return `split_linear` of `gated_linear`. In float16 a kernel may keep the gated values at another scale."""
    return split_linear(gated_linear(x_BC, gate_up_NC), down_CF)


def split_linear(x_BK: Tensor, weight_NK: Weight) -> Tensor:
    """Return x W^T as one part, parts_1BN, in at least float32."""
    wide = torch.promote_types(x_BK.dtype, torch.float32)
    return linear(x_BK.to(wide), widened(weight_NK, wide))[None]


def add_parts(
    x_BC: Tensor, parts_SBC: Tensor, added_bias_C: Tensor | None = None, *, others: Others = NO_OTHERS
) -> Tensor:
    """Return sum_BC: the parts from first to last, any bias and other terms, rounded to x's dtype; then x.

    The last sum is rounded again.
    """
    added_BC = parts_SBC[0]
    for part_BC in parts_SBC[1:]:
        added_BC = added_BC + part_BC
    if added_bias_C is not None:
        added_BC = added_BC + added_bias_C.to(added_BC.dtype)
    if others.experts is not None:
        added_BC = added_BC + combine(others.experts)
    if others.corrections_BC is not None:
        added_BC = added_BC + others.corrections_BC
    return x_BC + added_BC.to(x_BC.dtype)


def add_parts_layer_norm(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    others: Others = NO_OTHERS,
) -> tuple[Tensor, Tensor]:
    """Return sum_BC as by `add_parts`, and the layer norm of the rounded sum."""
    sum_BC = add_parts(x_BC, parts_SBC, added_bias_C, others=others)
    return sum_BC, layer_norm(sum_BC, weight_C, bias_C)


def add_parts_rms_norm(
    x_BC: Tensor, parts_SBC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Return sum_BC as by `add_parts` without a bias, and the RMS norm of the rounded sum, in `dtype`."""
    sum_BC = add_parts(x_BC, parts_SBC)
    return sum_BC, rms_norm(sum_BC, weight_C, epsilon=epsilon, dtype=dtype)
