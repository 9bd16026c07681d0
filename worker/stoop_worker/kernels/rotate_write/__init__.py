"""Rotate the queries and keys of a decoder layer, and store its keys and values in the KV pool.

    rotate_write(qkv_TN, places, pool, *, norms=None, in_line=False) -> q_THD
    rotate_write_gelu(qkvf_TN, places, pool, *, out_TM, in_line=False) -> q_THD
    rotation_table(max_context, rotary_dim, theta, device, *, dtype) -> table_SF2

T rows, H query heads, K key heads, D head dim, F frequencies (half the rotated channels), S positions.
`qkv_TN` (T, (H + 2 K) D) holds the heads of q, then of k, then of v: K and D are the pool's, and H follows from N.
Rows may be strided; a row's columns are contiguous. `pool` (2, pages, page size, K, D): the rows' dtype or
float8_e4m3fn.
`places` is a `Places`: positions int64 (T,) or (T, A), table_SF2 float32 (S, F, 2), slots_T int64, axis_F int32 (F,) or
None, and a `Heat` or None, which scales the heads of q and v. `norms` is a `HeadNorms`: weights q_D and k_D of the
rows' dtype, and epsilon. F = D / 2 rotates whole heads.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.rotate_write import reference
from stoop_worker.kernels.rotate_write.places import HeadNorms, Places
from stoop_worker.kernels.rotate_write.reference import rotation_table

__all__ = ["HeadNorms", "Places", "rotate_write", "rotate_write_gelu", "rotation_table"]


def rotate_write(
    qkv_TN: Tensor, places: Places, pool: Tensor, *, norms: HeadNorms | None = None, in_line: bool = False
) -> Tensor:
    """Return the rotated q_THD; see `reference.rotate_write`.

    `in_line` tells that it is part of a step whose kernels all start early, one after the other.
    """
    _check_rows(qkv_TN, places)
    if uses_kernel(qkv_TN):
        from stoop_worker.kernels.rotate_write import kernel

        return kernel.rotate_write(qkv_TN, places, pool, norms=norms, in_line=in_line)
    return reference.rotate_write(qkv_TN, places, pool, norms=norms)


def rotate_write_gelu(
    qkvf_TN: Tensor, places: Places, pool: Tensor, *, out_TM: Tensor, in_line: bool = False
) -> Tensor:
    """Return the rotated q_THD and fill the last columns of `out_TM`; see `reference.rotate_write_gelu`.

    `in_line` is as for `rotate_write`.
    """
    _check_rows(qkvf_TN, places)
    if uses_kernel(qkvf_TN):
        from stoop_worker.kernels.rotate_write import kernel

        return kernel.rotate_write_gelu(qkvf_TN, places, pool, out_TM=out_TM, in_line=in_line)
    return reference.rotate_write_gelu(qkvf_TN, places, pool, out_TM=out_TM)


def _check_rows(rows_TN: Tensor, places: Places) -> None:
    """Raise `ValueError` unless each row has a place: a kernel would read another array's memory as its slot."""
    if not len(rows_TN) == len(places.positions) == len(places.slots_T):
        raise ValueError(
            f"{len(rows_TN)} rows have {len(places.positions)} positions and {len(places.slots_T)} slots: "
            "each row needs one of each"
        )
