"""The local crops' features to one grid. B images, N crops of all of them, P patches of a crop, D feature dim."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.stitch_pool import reference
from worker.kernels.stitch_pool.reference import pool, stitch, stitch_pool

__all__ = ["global_and_local", "pool", "stitch", "stitch_pool"]


def global_and_local(features_NPD: Tensor, tilings_B4: Tensor, *, margin: int) -> Tensor:
    """Lay each image's global features and its pooled local ones side by side: views (B, P, 2 D).

    A row of `tilings_B4` int32 is an image: the index of its global crop, of its first local crop, rows, cols. Where
    the one local crop is the global one, both indices are the same.
    """
    if uses_kernel(features_NPD):
        from worker.kernels.stitch_pool.kernel import global_and_local as launch

        return launch(features_NPD, tilings_B4, margin=margin)
    return reference.global_and_local(features_NPD, tilings_B4, margin=margin)
