"""Rotary position embedding. T tokens, H heads, D head dim, F frequencies (half the rotated dims)."""

import torch
from torch import Tensor

__all__ = ["Rotation", "rope", "rotation"]

Rotation = tuple[Tensor, Tensor]
"""cos_TF and sin_TF, float32 (float64 for float64 activations)."""


def rotation(positions_T: Tensor, rotary_dim: int, theta: float, *, dtype: torch.dtype) -> Rotation:
    """Return the cosines and sines of every position's angles, for activations of `dtype`.

    Frequency i of `rotary_dim / 2` is theta^(-2i / rotary_dim).
    """
    precise = torch.promote_types(dtype, torch.float32)
    exponents_F = torch.arange(0, rotary_dim, 2, dtype=precise, device=positions_T.device) / rotary_dim
    angles_TF = positions_T.to(precise)[..., None] * theta**-exponents_F
    return angles_TF.cos(), angles_TF.sin()


def rope(x_THD: Tensor, rotation_TF: Rotation) -> Tensor:
    """Rotate the first 2F channels of every head; the rest pass through.

    The input pairs channel i with channel F + i; the output stores each pair side by side, as the KV cache of
    Moondream's reference does. q and k have the same layout, so their products do not change.
    """
    cos_TF, sin_TF = rotation_TF
    count = cos_TF.shape[-1]
    cos_THF, sin_THF = cos_TF[..., None, :], sin_TF[..., None, :]
    real_THF, imaginary_THF = x_THD[..., :count], x_THD[..., count : 2 * count]
    pairs = torch.stack(
        (real_THF * cos_THF - imaginary_THF * sin_THF, real_THF * sin_THF + imaginary_THF * cos_THF), dim=-1
    )
    return torch.cat((pairs.flatten(-2).to(x_THD.dtype), x_THD[..., 2 * count :]), dim=-1)
