"""Layer normalisation, alone or after sums. T rows (may stand for several leading dims), C model dim."""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.layer_norm import reference
from stoop_worker.kernels.layer_norm.reference import EPSILON

__all__ = ["add_layer_norm", "add_layer_norm_fp8", "layer_norm", "layer_norm_fp8", "norm_of_sum", "norm_of_sum_fp8"]


def layer_norm(x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Normalise over the last dim: statistics in at least float32, input and output in the same dtype."""
    if uses_kernel(x_TC, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import layer_norm as launch

        return launch(x_TC, weight_C, bias_C, epsilon=epsilon)
    return reference.layer_norm(x_TC, weight_C, bias_C, epsilon=epsilon)


def add_layer_norm(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, epsilon: float = EPSILON
) -> tuple[Tensor, Tensor]:
    """Add one or two tensors of x's shape to it in turn; return sum_TC and its layer norm.

    The sum is rounded to the dtype after each addition, as in (x + a) + b. The first tensor may have fewer rows than x;
    its rows are then repeated, so x must have a multiple of them.
    """
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import add_layer_norm as launch

        return launch(x_TC, added, weight_C, bias_C, epsilon=epsilon)
    return reference.add_layer_norm(x_TC, added, weight_C, bias_C, epsilon=epsilon)


def layer_norm_fp8(
    x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the layer norm's rows, rounded to x's dtype, as float8_e4m3fn with the float32 scale of each row.

    If `scale` is given, all rows have it.
    """
    if uses_kernel(x_TC, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import layer_norm_fp8 as launch

        return launch(x_TC, weight_C, bias_C, scale=scale)
    return reference.layer_norm_fp8(x_TC, weight_C, bias_C, scale=scale)


def add_layer_norm_fp8(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return sum_TC as by `add_layer_norm`, and its layer norm as by `layer_norm_fp8`."""
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import add_layer_norm_fp8 as launch

        return launch(x_TC, added, weight_C, bias_C, scale=scale)
    return reference.add_layer_norm_fp8(x_TC, added, weight_C, bias_C, scale=scale)


def norm_of_sum(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, into_TC: Tensor | None = None
) -> Tensor:
    """Return the layer norm of the sum that `add_layer_norm` makes, without the sum, in `into_TC` if that is given."""
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import norm_of_sum as launch

        return launch(x_TC, added, weight_C, bias_C, into_TC=into_TC)
    return reference.norm_of_sum(x_TC, added, weight_C, bias_C, into_TC=into_TC)


def norm_of_sum_fp8(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return `norm_of_sum`, and the same rows as float8_e4m3fn with the float32 scale of each."""
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from stoop_worker.kernels.layer_norm.kernel import norm_of_sum_fp8 as launch

        return launch(x_TC, added, weight_C, bias_C)
    return reference.norm_of_sum_fp8(x_TC, added, weight_C, bias_C)
