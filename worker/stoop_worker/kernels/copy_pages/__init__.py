"""Copies whole pages of the KV pool, in all layers.

    copy_pages(pages, sources_B, targets_B)

B copies. `pages` (layers, 2, pages, page size, K, D) is contiguous, of any dtype; `sources_B` and `targets_B` are
integers. A copy whose source is -1 does nothing. No page is the target of two copies, or a target and a source. The
launch may be captured.
"""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.copy_pages import reference

__all__ = ["copy_pages"]


def copy_pages(pages: Tensor, sources_B: Tensor, targets_B: Tensor) -> None:
    """Copy page `sources_B[b]` to page `targets_B[b]`; see `reference.copy_pages`."""
    if uses_kernel(pages):
        from stoop_worker.kernels.copy_pages.kernel import copy_pages as launch

        launch(pages, sources_B, targets_B)
    else:
        reference.copy_pages(pages, sources_B, targets_B)
