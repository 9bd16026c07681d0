"""Root-mean-square normalisation. T rows (may stand for several leading dims), C model dim.

Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch
from torch import Tensor

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_add_rms_norm"]


def rms_norm(x_TC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * weight over the last dim, rounded once, to `dtype`, by default x's.

    It is computed in float32, or in float64 for float64 rows. A family that stores its weights as differences from 1
    adds the 1 when it loads them.
    """
    precise_TC = x_TC.to(torch.promote_types(x_TC.dtype, torch.float32))
    scale_T1 = (precise_TC.square().mean(dim=-1, keepdim=True) + epsilon).rsqrt()
    return (precise_TC * scale_T1 * weight_C.to(precise_TC.dtype)).to(dtype or x_TC.dtype)


def add_rms_norm(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, *, epsilon: float) -> tuple[Tensor, Tensor]:
    """Add one or two tensors of x's shape to it in turn; return sum_TC and its norm.

    The sum is rounded to the dtype after each addition, as in (x + a) + b.
    """
    for other_TC in added:
        x_TC = x_TC + other_TC
    return x_TC, rms_norm(x_TC, weight_C, epsilon=epsilon)


def rms_norm_add_rms_norm(
    x_TC: Tensor, added_TC: Tensor, weights: tuple[Tensor, Tensor], *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Add the norm of another tensor of x's shape to x; return sum_TC and its norm.

    The first weight is that of the added tensor, the second that of the sum. Both norms and the sum are rounded.
    """
    first_C, second_C = weights
    return add_rms_norm(x_TC, (rms_norm(added_TC, first_C, epsilon=epsilon),), second_C, epsilon=epsilon)
