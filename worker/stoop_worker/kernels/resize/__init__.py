"""Pillow's LANCZOS and BICUBIC on any device. H and W rows and columns, C channels."""

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.resize import reference
from stoop_worker.kernels.resize.taps import Filter

__all__ = ["Filter", "resize"]


def resize(
    pixels_HWC: Tensor, height: int, width: int, *, by: Filter = Filter.LANCZOS, into_HWC: Tensor | None = None
) -> Tensor:
    """Resize uint8 pixels to (height, width, C) uint8; the result is bit-identical to Pillow's.

    If the contiguous `into_HWC` is given, it receives the result and is returned.
    """
    if uses_kernel(pixels_HWC):
        from stoop_worker.kernels.resize.kernel import resize as launch

        return launch(pixels_HWC, height, width, by=by, into_HWC=into_HWC)
    return reference.resize(pixels_HWC, height, width, by=by, into_HWC=into_HWC)
