"""Coordinates and sizes, read from hidden states and written into embeddings.

B rows, C model dim. Values are fractions of the image's width or height.
"""

from math import tau

import torch
from torch import Tensor

from stoop_worker.models.blocks.layers import MLP, LayerNorm, Linear, layer_norm, linear, mlp
from stoop_worker.models.moondream.weights import RegionWeights

__all__ = [
    "coordinate_logits",
    "read_coordinate",
    "read_size",
    "size_logits",
    "write_coordinate",
    "write_size",
]

_OCTAVES = 10  # size bins are even in log2, from 2^-10 to 1


def coordinate_logits(hidden_BC: Tensor, weights: RegionWeights) -> Tensor:
    """Return (B, bins) logits of a coordinate; the hidden state is the raw residual stream."""
    return _decode(hidden_BC, weights.coord_decoder, weights.norms)


def size_logits(hidden_BC: Tensor, weights: RegionWeights) -> Tensor:
    """Return (B, 2, bins) logits of width and height; the hidden state is the raw residual stream."""
    logits_BN = _decode(hidden_BC, weights.size_decoder, weights.norms)
    return logits_BN.view(*hidden_BC.shape[:-1], 2, -1)


def read_coordinate(logits_BN: Tensor) -> Tensor:
    """Return the likeliest coordinate of each row, (B,) float32 in [0, 1)."""
    return logits_BN.argmax(dim=-1).float() / logits_BN.shape[-1]


def read_size(logits_B2N: Tensor) -> Tensor:
    """Return the likeliest (width, height) of each row, (B, 2) float32 in [2^-10, 1]."""
    bins_B2 = logits_B2N.argmax(dim=-1).float()
    # a divisor that is a tensor, and a power taken in float64: so every device gives the same last digit
    last = torch.full_like(bins_B2, logits_B2N.shape[-1] - 1)
    return torch.exp2((bins_B2 / last * _OCTAVES - _OCTAVES).double()).float()


def write_coordinate(values_B: Tensor, weights: RegionWeights) -> Tensor:
    """Return embeddings (B, C) of coordinates; like the reference, a value is first rounded to the weights' dtype."""
    return _write(values_B[..., None], weights.coord_features, weights.coord_encoder)


def write_size(sizes_B2: Tensor, weights: RegionWeights) -> Tensor:
    """Return embeddings (B, C) of (width, height); like the reference, first rounded to the weights' dtype."""
    return _write(sizes_B2, weights.size_features, weights.size_encoder)


def _decode(hidden_BC: Tensor, decoder: MLP | Linear, norms: tuple[LayerNorm, ...]) -> Tensor:
    for norm in norms:
        hidden_BC = layer_norm(hidden_BC, norm)
    return linear(hidden_BC, decoder) if isinstance(decoder, Linear) else mlp(hidden_BC, decoder)


def _write(values_BI: Tensor, frequencies_IF: Tensor, encoder: Linear) -> Tensor:
    # the frequencies are not small: the order of these products decides what bfloat16 rounds away
    phases_BF = (tau * values_BI.to(frequencies_IF.dtype)) @ frequencies_IF
    return linear(torch.cat((phases_BF.cos(), phases_BF.sin()), dim=-1), encoder)
