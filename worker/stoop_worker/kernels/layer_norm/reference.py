"""Layer normalisation. T rows (may stand for several leading dims), C model dim."""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.fp8 import reference as fp8

__all__ = [
    "EPSILON",
    "add_layer_norm",
    "add_layer_norm_fp8",
    "layer_norm",
    "layer_norm_fp8",
    "norm_of_sum",
    "norm_of_sum_fp8",
]

EPSILON = 1e-5


def layer_norm(x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Normalise over the last dim: statistics in at least float32, input and output in the same dtype."""
    return functional.layer_norm(x_TC, torch.Size(weight_C.shape), weight_C, bias_C, epsilon)


def add_layer_norm(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, epsilon: float = EPSILON
) -> tuple[Tensor, Tensor]:
    """Add one or two tensors of x's shape to it in turn; return sum_TC and its layer norm.

    The sum is rounded to the dtype after each addition, as in (x + a) + b. The first tensor may have fewer rows than x;
    its rows are then repeated, so x must have a multiple of them.
    """
    for other_TC in added:
        x_TC = x_TC + other_TC
    return x_TC, layer_norm(x_TC, weight_C, bias_C, epsilon=epsilon)


def layer_norm_fp8(
    x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return the layer norm's rows, rounded to x's dtype, as float8_e4m3fn with the float32 scale of each row.

    If `scale` is given, all rows have it.
    """
    return _in_fp8(layer_norm(x_TC, weight_C, bias_C), scale)


def add_layer_norm_fp8(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return sum_TC as by `add_layer_norm`, and its layer norm as by `layer_norm_fp8`."""
    sum_TC, normed_TC = add_layer_norm(x_TC, added, weight_C, bias_C)
    return sum_TC, _in_fp8(normed_TC, scale)


def norm_of_sum(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor, *, into_TC: Tensor | None = None
) -> Tensor:
    """Return the layer norm of the sum that `add_layer_norm` makes, without the sum, in `into_TC` if that is given."""
    _, normed_TC = add_layer_norm(x_TC, added, weight_C, bias_C)
    return normed_TC if into_TC is None else into_TC.copy_(normed_TC)


def norm_of_sum_fp8(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, bias_C: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Return `norm_of_sum`, and the same rows as float8_e4m3fn with the float32 scale of each."""
    normed_TC = norm_of_sum(x_TC, added, weight_C, bias_C)
    return normed_TC, fp8.quantise_rows(normed_TC)


def _in_fp8(normed_TC: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    if scale is None:
        return fp8.quantise_rows(normed_TC)
    scale_T1 = torch.full((*normed_TC.shape[:-1], 1), scale, device=normed_TC.device)
    return (normed_TC.float() / scale_T1).to(torch.float8_e4m3fn), scale_T1
