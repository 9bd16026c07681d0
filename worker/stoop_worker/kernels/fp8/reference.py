"""Linear layers in fp8 (e4m3), with one scale a row and one an output channel.

A layer that reads a layer norm may have one scale for all rows and one for the weight. The scale of the rows follows
from the weights: the C values of a norm, before its own weight and bias, have a Euclidean length of at most sqrt(C).

T rows (may stand for several leading dims), C input dim, N output dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "FixedScale",
    "Fp8Linear",
    "gelu_fp8",
    "gelu_linear_fp8",
    "quantise_by",
    "quantise_rows",
    "quantise_weight",
    "scaled_linear",
]

_LARGEST = 448.0  # of e4m3
_LEAST = 1e-12  # gives a row of zeros a scale
_LEAST_GELU = 0.17  # the lowest value of a GELU is a little above -0.17
_ROUNDED_UP = (17 / 16) ** 2  # how much larger a product may become when both of its sides are rounded to fp8


@dataclass(frozen=True, slots=True)
class FixedScale:
    """A scale that is known before the values: as a number, as a tensor (1, 1) float32, and its inverse as such."""

    value: float
    scale_11: Tensor
    inverse_11: Tensor

    @classmethod
    def of(cls, largest: Tensor) -> "FixedScale":
        """Return the scale of values up to the largest of these."""
        scale_11 = largest.float().amax().clamp(min=_LEAST).view(1, 1) / _LARGEST
        return cls(scale_11.item(), scale_11, 1 / scale_11)

    @classmethod
    def of_norm(cls, weight_C: Tensor, bias_C: Tensor) -> "FixedScale":
        """Return the scale of all rows of a layer norm with this weight and bias."""
        return cls.of(weight_C.float().abs() * len(weight_C) ** 0.5 + bias_C.float().abs())

    @classmethod
    def after_norm(cls, weight_NC: Tensor, bias_N: Tensor, norm: tuple[Tensor, Tensor]) -> "FixedScale":
        """Return the scale of a linear layer's outputs, and of their GELU, if it reads a norm."""
        gain_C, shift_C = (each.float() for each in norm)
        precise_NC = weight_NC.float()
        spread_N = (precise_NC * gain_C).norm(dim=1) * len(gain_C) ** 0.5
        largest_N = spread_N * _ROUNDED_UP + (precise_NC @ shift_C + bias_N.float()).abs()
        return cls.of(largest_N.clamp(min=_LEAST_GELU))


@dataclass(frozen=True, slots=True)
class Fp8Linear:
    """The weight is `weight` (N, C) float8_e4m3fn times `scale_N` float32; `bias` (N,) has the output's dtype.

    C and N must be multiples of 16. If `scale_N` has one value for all channels, all input rows have one scale too:
    `rows` if it is known before. `gelu` is the scale of the GELU of the outputs, if that is part of the product.
    """

    weight: Tensor
    scale_N: Tensor
    bias: Tensor
    rows: FixedScale | None = None
    gelu: FixedScale | None = None

    @classmethod
    def of(cls, weight_NC: Tensor, bias_N: Tensor) -> "Fp8Linear":
        """Quantise a linear layer's weight (out, in)."""
        weight, scale_N = quantise_weight(weight_NC)
        return cls(weight, scale_N, bias_N)

    @classmethod
    def of_one_scale(
        cls, weight_NC: Tensor, bias_N: Tensor, *, rows: FixedScale | None = None, gelu: FixedScale | None = None
    ) -> "Fp8Linear":
        """Quantise a weight with one scale for all its channels."""
        values, scale_1 = quantise_weight(weight_NC.reshape(1, -1))
        return cls(values.view(weight_NC.shape), scale_1, bias_N, rows, gelu)


def quantise_weight(weight_NC: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights as float8_e4m3fn, and the float32 scale of each output channel."""
    values_NC, scale_N1 = quantise_rows(weight_NC)
    return values_NC, scale_N1[:, 0].contiguous()


def quantise_rows(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows as float8_e4m3fn, and scale_T1 float32: a row's largest magnitude maps to 448, fp8's largest."""
    precise_TC = x_TC.float()
    scale_T1 = precise_TC.abs().amax(dim=-1, keepdim=True).clamp(min=_LEAST) / _LARGEST
    return (precise_TC / scale_T1).to(torch.float8_e4m3fn), scale_T1


def gelu_fp8(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tanh-GELU of rows, rounded to their dtype and then quantised as by `quantise_rows`."""
    return quantise_rows(functional.gelu(x_TC, approximate="tanh"))


def quantise_by(x_TC: Tensor, scale: FixedScale) -> Tensor:
    """Return values as float8_e4m3fn; those beyond the scale become the largest."""
    return (x_TC.float() * scale.inverse_11.view(())).clamp(-_LARGEST, _LARGEST).to(torch.float8_e4m3fn)


def gelu_linear_fp8(x8_TC: Tensor, scale_T1: Tensor, weights: Fp8Linear) -> tuple[Tensor, Tensor]:
    """Return the tanh-GELU of a layer with a `gelu`, as float8_e4m3fn, and the scale of all its values."""
    assert weights.gelu is not None, "the scale must be known before the values"
    y_TN = functional.gelu(scaled_linear(x8_TC, scale_T1, weights).float(), approximate="tanh")
    return quantise_by(y_TN, weights.gelu), weights.gelu.scale_11


def scaled_linear(x8_TC: Tensor, scale_T1: Tensor, weights: Fp8Linear) -> Tensor:
    """Return x W^T + b for quantised rows, computed in float32 and rounded to the bias's dtype."""
    weight_NC = weights.weight.float() * weights.scale_N[:, None]
    y_TN = functional.linear(x8_TC.float() * scale_T1, weight_NC, weights.bias.float())
    return y_TN.to(weights.bias.dtype)
