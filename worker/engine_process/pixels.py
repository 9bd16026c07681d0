"""Pixels in memory that two processes share: a file without a name, passed on by its descriptor.

Without a name nothing can be left behind: the memory is freed when the last process that has it open or mapped lets go
of it, however it ends. There is one for each image in flight, so never more than the worker has permits.
"""

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from worker.images import Crops, Image, Tiling

__all__ = ["Layout", "laid_out", "pick_up"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What `Crops` or `Image` has beside its pixels, and the shape of these; an image not cut has no tiling."""

    shape: tuple[int, ...]
    tiling: Tiling | None
    digest: bytes


@contextlib.contextmanager
def laid_out(image: Crops | Image) -> Iterator[tuple[int, Layout]]:
    """Copy the pixels into a file in memory; gives its descriptor, good within the `with`, and the layout."""
    file = _open_nameless()
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(np.ascontiguousarray(image.pixels).data)
        yield file, Layout(image.pixels.shape, image.tiling if isinstance(image, Crops) else None, image.digest)
    finally:
        os.close(file)


def pick_up(file: int, layout: Layout) -> Crops | Image:
    """Map the pixels, read-only, and close the descriptor; the memory is freed with the image."""
    try:
        pixels = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    array = np.frombuffer(pixels, dtype=np.uint8).reshape(layout.shape)
    if layout.tiling is None:
        return Image(pixels=array, digest=layout.digest)
    return Crops(pixels=array, tiling=layout.tiling, digest=layout.digest)


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pixels")
    with tempfile.TemporaryFile() as file:  # systems other than Linux
        return os.dup(file.fileno())
