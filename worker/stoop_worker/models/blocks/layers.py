"""The building blocks of models: linear layers, plain or in fp8, layer norms, and MLPs of two layers.

T rows (may stand for several leading dims), C model dim, F inner dim.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels import fp8
from stoop_worker.kernels import layer_norm as norm
from stoop_worker.kernels.linear import linear as product

__all__ = [
    "MLP",
    "AnyLinear",
    "Fp8Rows",
    "LayerNorm",
    "Linear",
    "Rows",
    "add_layer_norm",
    "inner_rows",
    "layer_norm",
    "layer_norm_for",
    "linear",
    "mlp",
    "norm_of_sum",
    "rows_for",
    "select",
]


@dataclass(frozen=True, slots=True)
class Linear:
    """`weight` (out, in), `bias` (out,)."""

    weight: Tensor
    bias: Tensor


AnyLinear = Linear | fp8.Fp8Linear
"""A linear layer of a block, as stored in a checkpoint or quantised."""


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """`weight` and `bias` of the normalised dim."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, slots=True)
class MLP:
    """Linear, tanh-GELU, Linear."""

    fc1: AnyLinear
    fc2: AnyLinear


class Fp8Rows(NamedTuple):
    """Rows (T, C) float8_e4m3fn, and the scale (T, 1) float32 of each, or (1, 1) of all."""

    values_TC: Tensor
    scales_T1: Tensor


Rows = Tensor | Fp8Rows
"""The input of a linear layer; an fp8 layer quantises a plain tensor itself."""


def select(rows: Rows, index_R: Tensor) -> Rows:
    """Return some of the rows."""
    if isinstance(rows, Fp8Rows):
        # as bytes: torch does not index float8 on every device
        values_RC = rows.values_TC.view(torch.uint8)[index_R].view(rows.values_TC.dtype)
        return Fp8Rows(values_RC, rows.scales_T1[index_R])
    return rows[index_R]


def linear(x_TC: Rows, weights: AnyLinear) -> Tensor:
    """Return x W^T + b."""
    if isinstance(weights, Linear):
        assert isinstance(x_TC, Tensor), "rows are quantised for fp8 layers alone"
        return product(x_TC, weights.weight, weights.bias)
    values_TC, scales_T1 = x_TC if isinstance(x_TC, Fp8Rows) else fp8.quantise_rows(x_TC)
    return fp8.scaled_linear(values_TC, scales_T1, weights)


def layer_norm(x_TC: Tensor, weights: LayerNorm) -> Tensor:
    """Normalise over the last dim."""
    return norm.layer_norm(x_TC, weights.weight, weights.bias)


def layer_norm_for(reader: AnyLinear, x_TC: Tensor, weights: LayerNorm) -> Rows:
    """Normalise over the last dim, as rows for the linear layer that reads them."""
    if isinstance(reader, fp8.Fp8Linear):
        return Fp8Rows(*norm.layer_norm_fp8(x_TC, weights.weight, weights.bias, scale=_scale_of(reader)))
    return layer_norm(x_TC, weights)


def add_layer_norm(
    x_TC: Tensor, added: tuple[Tensor, ...], weights: LayerNorm, *, reader: AnyLinear | None = None
) -> tuple[Tensor, Rows]:
    """Return the sum, rounded after each addition, and its norm as rows for the linear layer that reads them."""
    if isinstance(reader, fp8.Fp8Linear):
        scale = _scale_of(reader)
        sum_TC, rows = norm.add_layer_norm_fp8(x_TC, added, weights.weight, weights.bias, scale=scale)
        return sum_TC, Fp8Rows(*rows)
    return norm.add_layer_norm(x_TC, added, weights.weight, weights.bias)


def norm_of_sum(x_TC: Tensor, added_TC: Tensor, weights: LayerNorm, *, reader: AnyLinear) -> tuple[Tensor, Rows]:
    """Return the norm of the sum, plain and as rows for the linear layer that reads them."""
    if isinstance(reader, fp8.Fp8Linear):
        normed_TC, rows = norm.norm_of_sum_fp8(x_TC, (added_TC,), weights.weight, weights.bias)
        return normed_TC, Fp8Rows(*rows)
    normed_TC = norm.norm_of_sum(x_TC, (added_TC,), weights.weight, weights.bias)
    return normed_TC, normed_TC


def rows_for(reader: AnyLinear, x_TC: Tensor) -> Rows:
    """Return rows for the linear layer that reads them, for several such layers to share."""
    return Fp8Rows(*fp8.quantise_rows(x_TC)) if isinstance(reader, fp8.Fp8Linear) else x_TC


def mlp(x_TC: Rows, weights: MLP) -> Tensor:
    """Return Linear, tanh-GELU, Linear of x."""
    return linear(inner_rows(x_TC, weights.fc1), weights.fc2)


def inner_rows(x_TC: Rows, fc1: AnyLinear) -> Rows:
    """Return tanh-GELU of a linear layer, as rows for a layer of its kind."""
    if isinstance(fc1, fp8.Fp8Linear):
        if fc1.gelu is not None:
            assert isinstance(x_TC, Fp8Rows), "the rows come from a norm"
            return Fp8Rows(*fp8.gelu_linear_fp8(*x_TC, fc1))
        return Fp8Rows(*fp8.gelu_fp8(linear(x_TC, fc1)))
    assert isinstance(x_TC, Tensor), "rows are quantised for fp8 layers alone"
    if x_TC.is_cuda and not torch.is_grad_enabled():
        # the product and the activation in one pass take a fifth less time
        inner_TF: Tensor = torch._addmm_activation(fc1.bias, x_TC.flatten(0, -2), fc1.weight.t(), use_gelu=True)
        return inner_TF.view(*x_TC.shape[:-1], -1)
    return functional.gelu(linear(x_TC, fc1), approximate="tanh")


def _scale_of(reader: fp8.Fp8Linear) -> float | None:
    return None if reader.rows is None else reader.rows.value
