"""Attention over a paged KV pool: for decodes, prefills, and any mixture of them."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.paged_attention import hopper, reference
from worker.kernels.paged_attention.layout import PagedLayout
from worker.kernels.paged_attention.reference import prefix_mask, write_kv

__all__ = ["HEAD_DIMS", "PagedLayout", "paged_attention", "prefix_mask", "write_kv"]

HEAD_DIMS = (16, 32, 64, 128)
"""What the kernels take; other head dims go to the reference."""


def paged_attention(q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, out_TM: Tensor | None = None) -> Tensor:
    """Let every query row attend to its sequence's positions in the pool; see `reference.paged_attention`."""
    if uses_kernel(q_THD) and q_THD.shape[2] in HEAD_DIMS:
        if q_THD.shape[0] == layout.context_lens_B.shape[0]:
            from worker.kernels.paged_attention.decode import decode

            return decode(q_THD, pool, layout, out_TM=out_TM)
        if hopper.takes(q_THD, pool, layout):
            return hopper.prefill(q_THD, pool, layout, out_TM=out_TM)
        from worker.kernels.paged_attention.prefill import prefill

        return prefill(q_THD, pool, layout, out_TM=out_TM)
    return reference.paged_attention(q_THD, pool, layout, out_TM=out_TM)
