"""The steps between the two products of a decode's layer: rotation, the write to the KV pool, attention and GELU."""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.paged_attention import HEAD_DIMS, PagedLayout
from stoop_worker.kernels.rotate_attend import reference
from stoop_worker.kernels.rotate_write import Places

__all__ = ["MOST_ROWS", "rotate_attend"]

MOST_ROWS = 1
"""With more rows, two launches are faster than one."""


def rotate_attend(
    made_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    out_BM: Tensor,
) -> None:
    """Fill `out_BM` from the first product's rows, and store their keys and values; see `reference.rotate_attend`."""
    one_launch = made_BN.shape[0] <= MOST_ROWS and pool.shape[4] in HEAD_DIMS and places.heat is None
    if one_launch and uses_kernel(made_BN):
        from stoop_worker.kernels.rotate_attend import kernel

        kernel.rotate_attend(made_BN, places, pool, layout, out_BM=out_BM)
    else:
        reference.rotate_attend(made_BN, places, pool, layout, out_BM=out_BM)
