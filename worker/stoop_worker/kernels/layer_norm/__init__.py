"""Layer normalisation, alone or with the sums before it. T rows (may stand for several leading dims), C model dim."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.layer_norm import reference

__all__ = ["add_layer_norm", "add_layer_norm_fp8", "layer_norm", "layer_norm_fp8"]


def layer_norm(x_TC: Tensor, weight_C: Tensor, bias_C: Tensor) -> Tensor:
    """Normalise over the last dim: statistics in at least float32, input and output in the same dtype."""
    if uses_kernel(x_TC, weight_C, bias_C):
        from worker.kernels.layer_norm.kernel import layer_norm as launch

        return launch(x_TC, weight_C, bias_C)
    return reference.layer_norm(x_TC, weight_C, bias_C)


def add_layer_norm(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor) -> tuple[Tensor, Tensor]:
    """Add one or two tensors like x to it, one after the other; return sum_TC and its layer norm.

    The sum is rounded to the dtype after each addition, as (x + a) + b is.
    """
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from worker.kernels.layer_norm.kernel import add_layer_norm as launch

        return launch(x_TC, added, weight_C, bias_C)
    return reference.add_layer_norm(x_TC, added, weight_C, bias_C)


def layer_norm_fp8(x_TC: Tensor, weight_C: Tensor, bias_C: Tensor) -> tuple[Tensor, Tensor]:
    """Return the layer norm's rows, rounded to x's dtype, as float8_e4m3fn and the float32 scale of each."""
    if uses_kernel(x_TC, weight_C, bias_C):
        from worker.kernels.layer_norm.kernel import layer_norm_fp8 as launch

        return launch(x_TC, weight_C, bias_C)
    return reference.layer_norm_fp8(x_TC, weight_C, bias_C)


def add_layer_norm_fp8(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return sum_TC as `add_layer_norm` does, and its layer norm as `layer_norm_fp8` does."""
    if uses_kernel(x_TC, *added, weight_C, bias_C):
        from worker.kernels.layer_norm.kernel import add_layer_norm_fp8 as launch

        return launch(x_TC, added, weight_C, bias_C)
    return reference.add_layer_norm_fp8(x_TC, added, weight_C, bias_C)
