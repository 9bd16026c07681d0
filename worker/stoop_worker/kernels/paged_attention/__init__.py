"""Attention over a paged KV pool, for decodes, prefills, and any mixture of them.

    paged_attention(q_THD, pool, layout, *, scale=None, out_TM=None) -> o_THD
    write_kv(k_TKD, v_TKD, pool, slots_T)
    write_all_kv(k_TKD, v_TKD, pool, slots_T)    no slot is below 0

T query rows, H query heads, K key heads, D head dim, M >= H D.
`q_THD` (T, H, D) may be strided by row; a row's channels are contiguous. `pool` (2, pages, page size, K, D) has the
queries' dtype or float8_e4m3fn. If `layout.planned` is set, a library computes the attention, else our kernels or the
reference. H is a multiple of K: query head h reads key head h // (H / K). `scale` is a Python
float that multiplies the products of queries and keys; None means 1 / sqrt(D). `out_TM` receives the output in its
first H D columns.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.paged_attention import hopper, in_place, reference
from stoop_worker.kernels.paged_attention.layout import PagedLayout, PlannedBatch
from stoop_worker.kernels.paged_attention.reference import prefix_mask, write_all_kv, write_kv

__all__ = ["HEAD_DIMS", "PagedLayout", "PlannedBatch", "paged_attention", "prefix_mask", "write_all_kv", "write_kv"]

HEAD_DIMS = (16, 32, 64, 128)
"""The head dims that the kernels take; the reference computes the others."""


def paged_attention(
    q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float | None = None, out_TM: Tensor | None = None
) -> Tensor:
    """Let every query row attend to its sequence's positions in the pool; see `reference.paged_attention`."""
    if q_THD.shape[1] % pool.shape[3]:
        raise ValueError(f"{q_THD.shape[1]} query heads cannot share {pool.shape[3]} key heads evenly")
    scale = q_THD.shape[2] ** -0.5 if scale is None else scale
    if layout.planned is not None:
        return layout.planned.run(q_THD, pool, scale=scale, out_TM=out_TM)
    is_decode = q_THD.shape[0] == layout.context_lens_B.shape[0]
    if is_decode and in_place.takes(q_THD, pool, layout):
        return in_place.decode(q_THD, pool, layout, scale=scale, out_TM=out_TM)
    if not uses_kernel(q_THD) or q_THD.shape[2] not in HEAD_DIMS:
        return reference.paged_attention(q_THD, pool, layout, scale=scale, out_TM=out_TM)
    if is_decode:
        return _decode(q_THD, pool, layout, scale, out_TM)
    if hopper.takes(q_THD, pool, layout):
        return hopper.prefill(q_THD, pool, layout, scale=scale, out_TM=out_TM)
    from stoop_worker.kernels.paged_attention.prefill import prefill

    return prefill(q_THD, pool, layout, scale=scale, out_TM=out_TM)


def _decode(q_BHD: Tensor, pool: Tensor, layout: PagedLayout, scale: float, out_BM: Tensor | None) -> Tensor:
    from stoop_worker.kernels.paged_attention.grouped_decode import decode_groups, suits_heads_alone

    if q_BHD.shape[1] != pool.shape[3] or suits_heads_alone(q_BHD, pool):
        return decode_groups(q_BHD, pool, layout, scale=scale, out_TM=out_BM)
    from stoop_worker.kernels.paged_attention.decode import decode

    return decode(q_BHD, pool, layout, scale=scale, out_TM=out_BM)
