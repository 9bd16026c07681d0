"""Arrays packed into one stretch of bytes, so that one copy sends them all."""

from math import prod

import torch
from torch import Tensor

__all__ = ["PackedBytes", "padded"]

_ALIGNMENT = 16  # no dtype is wider


class PackedBytes:
    """A stretch of bytes on the host or on the device, from which arrays are taken one after another.

    Two stretches have the same layout if the same shapes and dtypes are taken from both, in the same order.
    """

    def __init__(self, stretch: Tensor) -> None:
        """Take arrays from a tensor of uint8, whose size is a multiple of `padded`'s."""
        self._stretch = stretch
        self._size = stretch.numel()
        self._used = 0

    def has_room(self, count: int) -> bool:
        """Return whether an array of `count` bytes still fits."""
        return self._used + count <= self._size

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return the next array, a view of the bytes, which are not initialised."""
        start, end = self._used, self._used + prod(shape) * dtype.itemsize
        self._used = padded(end)
        return self._stretch[start:end].view(dtype).view(shape)

    def copy_from(self, other: "PackedBytes", *, without: int = 0) -> None:
        """Start the copy of all arrays taken from `other`, which has the same layout, except the last bytes."""
        count = other._used - without
        if count == self._size == other._size:
            self._stretch.copy_(other._stretch, non_blocking=True)
        else:
            self._stretch[:count].copy_(other._stretch[:count], non_blocking=True)


def padded(count: int) -> int:
    """Return the bytes to reserve for an array of `count` bytes, so that the next one is aligned."""
    return -(-count // _ALIGNMENT) * _ALIGNMENT
