"""The angles of rotary positions. F frequencies, half the rotated channels; S positions."""

from dataclasses import dataclass
from math import tau

import torch
from torch import Tensor

__all__ = ["Llama3Scaling", "frequencies", "rotations"]


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3's scaling of frequencies for contexts longer than `original_context`, the length in pretraining.

    A frequency whose wave is shorter than `original_context / high` stays. One whose wave is longer than
    `original_context / low` is divided by `factor`. Those between are blended.
    """

    factor: float
    low: float
    high: float
    original_context: int


def frequencies(head_dim: int, theta: float, scaling: Llama3Scaling | None = None) -> Tensor:
    """Return the angle per position of each frequency, theta^(-2i / head_dim): (F,) float64."""
    plain_F = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling is None:
        return plain_F
    waves_F = tau / plain_F
    kept_F = (scaling.original_context / waves_F - scaling.low) / (scaling.high - scaling.low)
    kept_F = kept_F.clamp(0, 1)
    return kept_F * plain_F + (1 - kept_F) * plain_F / scaling.factor


def rotations(frequencies_F: Tensor, max_context: int, device: torch.device, *, dtype: torch.dtype) -> Tensor:
    """Return table_SF2, the cosine and the sine of every position and frequency, for activations of `dtype`.

    It is float32, or float64 for float64 activations. The angles are computed in float64, because float32 has errors
    of a thousandth at position 32,768.
    """
    angles_SF = torch.arange(max_context, dtype=torch.float64)[:, None] * frequencies_F
    table_SF2 = torch.stack((angles_SF.cos(), angles_SF.sin()), dim=-1)
    return table_SF2.to(device, torch.promote_types(dtype, torch.float32))
