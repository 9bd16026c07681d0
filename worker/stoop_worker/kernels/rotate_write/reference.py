"""Rotation of queries and keys, and the write to the KV pool, of one decoder layer.

T token rows of N columns, H query heads, K key heads, D head dim, C = H D, F frequencies (half the rotated dims), S
positions, A axes of a position, M columns of the MLP's input to the next product. One layer's pool is (2, pages, page
size, K, D); a slot is page * page size + offset.
"""

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.paged_attention.reference import write_kv
from stoop_worker.kernels.rms_norm.reference import rms_norm
from stoop_worker.kernels.rope import rope, rotation
from stoop_worker.kernels.rotate_write.places import HeadNorms, Places
from stoop_worker.kernels.tau import scales, temper

__all__ = ["query_heads", "rotate_write", "rotate_write_gelu", "rotation_table"]


def rotation_table(
    max_context: int, rotary_dim: int, theta: float, device: torch.device, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return table_SF2: the cosine and the sine of every position and frequency, for activations of `dtype`.

    It is float32, or float64 for float64 activations.
    """
    positions_S = torch.arange(max_context, device=device)
    return torch.stack(rotation(positions_S, rotary_dim, theta, dtype=dtype), dim=-1)


def rotate_write(qkv_TN: Tensor, places: Places, pool: Tensor, *, norms: HeadNorms | None = None) -> Tensor:
    """Rotate q and k by the rule of `rope`, store k and v in their slots of the pool; returns q_THD.

    A row of `qkv_TN` holds the H heads of q, then the K heads of k and the K heads of v. The heat of `places` scales q
    and v first. With `norms`, every head of q and k is normalised first, and rounded to the rows' dtype. A slot below 0
    stores nothing. A float8_e4m3fn pool stores the values unscaled, clamped to its range.
    """
    key_heads, head_dim = pool.shape[3:]
    heads = query_heads(qkv_TN, pool)
    if places.heat is not None:
        qkv_TN = temper(qkv_TN, scales(places.heat, places.positions))
    qkv_THD = qkv_TN.view(len(qkv_TN), heads + 2 * key_heads, head_dim)
    q_THD, k_TKD, v_TKD = torch.split(qkv_THD, [heads, key_heads, key_heads], dim=1)
    if norms is not None:
        q_THD = rms_norm(q_THD, norms.q_D, epsilon=norms.epsilon)
        k_TKD = rms_norm(k_TKD, norms.k_D, epsilon=norms.epsilon)
    rotation_TF = places.rotation()
    write_kv(rope(k_TKD, rotation_TF), v_TKD, pool, places.slots_T)
    return rope(q_THD, rotation_TF)


def query_heads(qkv_TN: Tensor, pool: Tensor) -> int:
    """Return H, which follows from the width of the rows and the pool's K and D."""
    key_heads, head_dim = pool.shape[3:]
    heads, rest = divmod(qkv_TN.shape[1] - 2 * key_heads * head_dim, head_dim)
    if rest or heads < 1 or heads % key_heads:
        raise ValueError(
            f"rows of {qkv_TN.shape[1]} columns do not hold a multiple of {key_heads} query heads of {head_dim} "
            f"channels beside {key_heads} heads of keys and of values"
        )
    return heads


def rotate_write_gelu(qkvf_TN: Tensor, places: Places, pool: Tensor, *, out_TM: Tensor) -> Tensor:
    """Apply `rotate_write` to the first 3 C columns of merged rows and tanh-GELU to the others, fc1's; returns q_THD.

    There are as many key heads as query heads, and there may be no columns of fc1. GELU writes to `out_TM` from column
    C on. The first C columns belong to attention, so that one product with [proj | fc2] completes the layer.
    """
    heads, head_dim = pool.shape[3:]
    width = heads * head_dim
    out_TM[:, width:] = functional.gelu(qkvf_TN[:, 3 * width :], approximate="tanh")
    return rotate_write(qkvf_TN[:, : 3 * width], places, pool)
