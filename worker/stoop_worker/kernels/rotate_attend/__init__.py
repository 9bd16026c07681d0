"""The steps between two products of a decode's layer.

rotate_attend           rotation, the write to the KV pool, attention, and the GELU of a parallel block
rotate_attend_groups    norms of the heads, rotation, the write to the KV pool, and attention of grouped heads
"""

import torch
from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.paged_attention import HEAD_DIMS, PagedLayout
from stoop_worker.kernels.rotate_attend import reference
from stoop_worker.kernels.rotate_write import HeadNorms, Places

__all__ = ["MOST_GROUP_ROWS", "MOST_ROWS", "rotate_attend", "rotate_attend_groups"]

MOST_ROWS = 1
"""With more rows, two launches are faster than one."""

MOST_GROUP_ROWS = 4
"""The same for grouped heads."""


def rotate_attend(
    made_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    out_BM: Tensor,
    in_line: bool = False,
) -> None:
    """Fill `out_BM` from the first product's rows, and store their keys and values; see `reference.rotate_attend`.

    With `in_line` it is part of a step whose kernels all start early, one after the other.
    """
    if made_BN.shape[0] <= MOST_ROWS and places.heat is None and _one_launch(made_BN, pool, layout):
        from stoop_worker.kernels.rotate_attend import kernel

        kernel.rotate_attend(made_BN, places, pool, layout, out_BM=out_BM)
    else:
        reference.rotate_attend(made_BN, places, pool, layout, out_BM=out_BM, in_line=in_line)


def rotate_attend_groups(
    qkv_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    norms: HeadNorms | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Store the rows' keys and values, and return the heads' outputs; see `reference.rotate_attend_groups`."""
    if qkv_BN.shape[0] <= MOST_GROUP_ROWS and _one_launch(qkv_BN, pool, layout):
        from stoop_worker.kernels.rotate_attend import groups

        return groups.rotate_attend_groups(qkv_BN, places, pool, layout, norms=norms).to(dtype or qkv_BN.dtype)
    return reference.rotate_attend_groups(qkv_BN, places, pool, layout, norms=norms, dtype=dtype)


def _one_launch(rows_BN: Tensor, pool: Tensor, layout: PagedLayout) -> bool:
    """Return whether a kernel can do all of it; a library's attention is a launch of its own."""
    return layout.planned is None and pool.shape[4] in HEAD_DIMS and uses_kernel(rows_BN)
