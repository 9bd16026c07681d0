"""Root-mean-square normalisation, alone or after sums.

    rms_norm(x_TC, weight_C, *, epsilon, dtype=None) -> normed_TC
    add_rms_norm(x_TC, added, weight_C, *, epsilon) -> (sum_TC, normed_TC)
    rms_norm_add_rms_norm(x_TC, added_TC, weights, *, epsilon) -> (sum_TC, normed_TC)

T rows (may stand for several leading dims), C model dim; all tensors have one dtype: float32, float16 or bfloat16.
`rms_norm` may return another `dtype`.
"""

import torch
from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.rms_norm import reference

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_add_rms_norm"]


def rms_norm(x_TC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None) -> Tensor:
    """Divide each row by its root mean square and multiply it by the weight; see `reference.rms_norm`."""
    if uses_kernel(x_TC, weight_C):
        from stoop_worker.kernels.rms_norm.kernel import rms_norm as launch

        return launch(x_TC, weight_C, epsilon=epsilon, dtype=dtype)
    return reference.rms_norm(x_TC, weight_C, epsilon=epsilon, dtype=dtype)


def add_rms_norm(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, *, epsilon: float) -> tuple[Tensor, Tensor]:
    """Add one or two tensors of x's shape to it in turn; return sum_TC and its norm.

    The sum is rounded to the dtype after each addition, as in (x + a) + b.
    """
    if uses_kernel(x_TC, *added, weight_C):
        from stoop_worker.kernels.rms_norm.kernel import add_rms_norm as launch

        return launch(x_TC, added, weight_C, epsilon=epsilon)
    return reference.add_rms_norm(x_TC, added, weight_C, epsilon=epsilon)


def rms_norm_add_rms_norm(
    x_TC: Tensor, added_TC: Tensor, weights: tuple[Tensor, Tensor], *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Add the norm of another tensor of x's shape to x; return sum_TC and its norm.

    The first weight is that of the added tensor, the second that of the sum. Both norms and the sum are rounded.
    """
    if uses_kernel(x_TC, added_TC, *weights):
        from stoop_worker.kernels.rms_norm.kernel import rms_norm_add_rms_norm as launch

        return launch(x_TC, added_TC, weights, epsilon=epsilon)
    return reference.rms_norm_add_rms_norm(x_TC, added_TC, weights, epsilon=epsilon)
