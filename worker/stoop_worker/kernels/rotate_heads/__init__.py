"""Rotation of the queries and keys of an encoder, in place.

    rotate_heads(qkv_N3HD, rotations_NF2)

N rows, H heads, D head dim, F = D / 2 frequencies; 3: query, key, value. The dtype is float32, float16 or bfloat16.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.rotate_heads import reference

__all__ = ["rotate_heads"]


def rotate_heads(qkv_N3HD: Tensor, rotations_NF2: Tensor) -> None:
    """Rotate queries and keys by the angles of their rows; see `reference.rotate_heads`."""
    if uses_kernel(qkv_N3HD):
        from stoop_worker.kernels.rotate_heads.kernel import rotate_heads as launch

        launch(qkv_N3HD, rotations_NF2)
    else:
        reference.rotate_heads(qkv_N3HD, rotations_NF2)
