"""A linear layer with the steps around it in a pre-norm block. B rows, C columns of the input, N of the output.

With gating, the weight has 2 N rows: N that make the gates, then N that make the ups.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8.reference import Weight
from stoop_worker.kernels.block_fp8.reference import wide as widened
from stoop_worker.kernels.linear import linear
from stoop_worker.kernels.rms_norm.reference import rms_norm
from stoop_worker.kernels.swiglu.reference import swiglu

__all__ = ["RowNorm", "row_linear"]


@dataclass(frozen=True, slots=True)
class RowNorm:
    """An RMS norm of the input: its weight (C,), and the number added to the mean square."""

    weight_C: Tensor
    epsilon: float


def row_linear(
    x_BC: Tensor,
    weight_NC: Weight,
    *,
    norm: RowNorm | None = None,
    added_to_BN: Tensor | None = None,
    gated: bool = False,
) -> Tensor:
    """Return y_BN = norm(x) W^T, then silu(gate) * up if `gated`, then added to `added_to_BN`.

    All steps are computed in at least float32, and y is rounded once, to x's dtype.
    """
    wide = torch.promote_types(x_BC.dtype, torch.float32)
    rows_BC = x_BC.to(wide)
    if norm is not None:
        rows_BC = rms_norm(rows_BC, norm.weight_C, epsilon=norm.epsilon)
    y_BN = linear(rows_BC, widened(weight_NC, wide))
    if gated:
        y_BN = swiglu(y_BN)
    if added_to_BN is not None:
        y_BN = added_to_BN.to(wide) + y_BN
    return y_BN.to(x_BC.dtype)
