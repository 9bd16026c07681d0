"""Linear layers in fp8 (e4m3), with one scale a row and one an output channel.

T rows (may stand for several leading dims), C input dim, N output dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["Fp8Linear", "gelu_fp8", "quantise_rows", "quantise_weight", "scaled_linear"]

_LARGEST = 448.0  # of e4m3
_LEAST = 1e-12  # gives a row of zeros a scale


@dataclass(frozen=True, slots=True)
class Fp8Linear:
    """The weight is `weight` (N, C) float8_e4m3fn times `scale_N` float32; `bias` (N,) has the output's dtype.

    C and N must be multiples of 16.
    """

    weight: Tensor
    scale_N: Tensor
    bias: Tensor

    @classmethod
    def of(cls, weight_NC: Tensor, bias_N: Tensor) -> "Fp8Linear":
        """Quantise a linear layer's weight (out, in)."""
        weight, scale_N = quantise_weight(weight_NC)
        return cls(weight, scale_N, bias_N)


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


def scaled_linear(x8_TC: Tensor, scale_T1: Tensor, weights: Fp8Linear) -> Tensor:
    """Return x W^T + b for quantised rows, computed in float32 and rounded to the bias's dtype."""
    weight_NC = weights.weight.float() * weights.scale_N[:, None]
    y_TN = functional.linear(x8_TC.float() * scale_T1, weight_NC, weights.bias.float())
    return y_TN.to(weights.bias.dtype)
