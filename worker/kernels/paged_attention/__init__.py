from worker.kernels.paged_attention.layout import PagedLayout
from worker.kernels.paged_attention.reference import paged_attention, prefix_mask, write_kv

__all__ = ["PagedLayout", "paged_attention", "prefix_mask", "write_kv"]
