"""Pillow's LANCZOS on any device. H and W rows and columns, C channels."""

from torch import Tensor

from worker.kernels.backend import uses_kernel
from worker.kernels.resize import reference

__all__ = ["resize"]


def resize(pixels_HWC: Tensor, height: int, width: int, *, into_HWC: Tensor | None = None) -> Tensor:
    """Resize uint8 pixels to (height, width, C) uint8; the result is Pillow's, to the bit.

    `into_HWC`, contiguous, takes the result, and is what is returned.
    """
    if uses_kernel(pixels_HWC):
        from worker.kernels.resize.kernel import resize as launch

        return launch(pixels_HWC, height, width, into_HWC=into_HWC)
    return reference.resize(pixels_HWC, height, width, into_HWC=into_HWC)
