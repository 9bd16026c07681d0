"""Rotation of queries and keys, and the write to the KV pool, of one decoder layer.

T token rows, H heads, D head dim, C = H D, F frequencies (half the rotated dims), S positions, M columns of the MLP's
input to the next product. One layer's pool is (2, pages, page size, H, D); a slot is page * page size + offset.
"""

import torch
from torch import Tensor
from torch.nn import functional

from worker.kernels.paged_attention.reference import write_kv
from worker.kernels.rope import rope, rotation

__all__ = ["rotate_and_write", "rotate_write_gelu", "rotation_table"]


def rotation_table(
    max_context: int, rotary_dim: int, theta: float, device: torch.device, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return table_SF2: the cosine and the sine of every position and frequency, for activations of `dtype`.

    It is float32, float64 for float64 activations.
    """
    positions_S = torch.arange(max_context, device=device)
    return torch.stack(rotation(positions_S, rotary_dim, theta, dtype=dtype), dim=-1)


def rotate_and_write(
    qkv_TC: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, heads: int
) -> Tensor:
    """Rotate q and k by the rule of `rope`, store k and v in their slots of the pool; returns q_THD.

    A row of `qkv_TC` (T, 3 H D) holds the heads of q, then of k, then of v. `positions_T` and `slots_T` are int64. A
    slot below 0 stores nothing. A float8_e4m3fn pool takes the values as they are, the largest cut to its range.
    """
    qkv_THD = qkv_TC.view(len(qkv_TC), 3 * heads, -1)
    cos_TF, sin_TF = table_SF2[positions_T].unbind(-1)
    q_THD, k_THD = rope(qkv_THD[:, : 2 * heads], (cos_TF, sin_TF)).chunk(2, dim=1)
    write_kv(k_THD, qkv_THD[:, 2 * heads :], pool, slots_T)
    return q_THD


def rotate_write_gelu(
    qkvf_TN: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, out_TM: Tensor
) -> Tensor:
    """Do the same to the first 3 C columns of merged rows; the others, fc1's, go through tanh-GELU; returns q_THD.

    What GELU gives is written to `out_TM` from column C on, and nothing to its first C: they are the attention's, so
    that one product with [proj | fc2] ends the layer.
    """
    heads, head_dim = pool.shape[3:]
    width = heads * head_dim
    out_TM[:, width:] = functional.gelu(qkvf_TN[:, 3 * width :], approximate="tanh")
    return rotate_and_write(qkvf_TN[:, : 3 * width], positions_T, table_SF2, pool, slots_T, heads=heads)
