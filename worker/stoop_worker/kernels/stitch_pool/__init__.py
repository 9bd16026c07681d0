"""Averages local crops' features into one grid. B images, N crops of all images, P patches of a crop, D feature dim."""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.stitch_pool import reference

__all__ = ["global_and_local"]


def global_and_local(features_NPD: Tensor, tilings_B4: Tensor, *, margin: int) -> Tensor:
    """Lay each image's global features and its pooled local ones side by side: views (B, P, 2 D).

    A row of `tilings_B4` int32 describes an image: the index of its global crop, of its first local crop, rows, cols.
    The two indices are equal if the global crop is the only local one.
    """
    if uses_kernel(features_NPD):
        from stoop_worker.kernels.stitch_pool.kernel import global_and_local as launch

        return launch(features_NPD, tilings_B4, margin=margin)
    return reference.global_and_local(features_NPD, tilings_B4, margin=margin)
