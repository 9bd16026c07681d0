"""Rotation of the queries and keys of an encoder, in place. N rows, H heads, D head dim, F = D / 2 frequencies.

Su et al., "RoFormer", 2021; channel f of the first half forms a pair with channel f of the second.
"""

import torch
from torch import Tensor

__all__ = ["rotate_heads"]


def rotate_heads(qkv_N3HD: Tensor, rotations_NF2: Tensor) -> None:
    """Rotate queries and keys; `rotations_NF2` are the cosines and sines of each row, of at least float32.

    The rotation is computed in the dtype of `rotations_NF2`, and rounded once.
    """
    cos_N11F, sin_N11F = rotations_NF2[:, None, None].unbind(-1)
    one, two = qkv_N3HD[:, :2].to(rotations_NF2.dtype).chunk(2, dim=-1)
    rotated = torch.cat((one * cos_N11F - two * sin_N11F, two * cos_N11F + one * sin_N11F), dim=-1)
    qkv_N3HD[:, :2] = rotated.to(qkv_N3HD.dtype)
