"""Pixels in memory that two processes share, in files without a name: a front's, and those of its engine's process.

Most lie in trays: one file, mapped once by both and used again from image to image. The first touch of new shared
memory costs more than decoding takes off it: 1 ms for a photo of 850 x 600. What finds no tray gets a file of its own,
which is passed on by its descriptor. Without a name nothing can be left behind: the memory is freed when the last
process that has it open or mapped lets go of it, however it ends.
"""

import contextlib
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from worker.images import Crops, Image, Tiling

__all__ = ["Layout", "Trays", "laid_out", "map_trays", "pick_up"]

_Pixels = npt.NDArray[np.uint8]

_TRAYS = 64
_TRAY_BYTES = 4 << 20  # a photo of 1.4 megapixels, or the nine crops of a smaller one


@dataclass(frozen=True, slots=True)
class Layout:
    """What `Crops` or `Image` has beside its pixels, and the shape of these; an image not cut has no tiling.

    `start` is where they begin in the trays' memory; None if they have a file of their own.
    """

    shape: tuple[int, ...]
    tiling: Tiling | None
    digest: bytes
    start: int | None = None

    @classmethod
    def of(cls, image: Crops | Image, start: int | None = None) -> "Layout":
        """Lay an image out."""
        return cls(image.pixels.shape, image.tiling if isinstance(image, Crops) else None, image.digest, start)

    def image(self, pixels: _Pixels) -> Crops | Image:
        """Return the image again, on pixels that may be flat."""
        shaped = pixels.reshape(self.shape)
        if self.tiling is None:
            return Image(pixels=shaped, digest=self.digest)
        return Crops(pixels=shaped, tiling=self.tiling, digest=self.digest)


class Trays:
    """The front's side: arrays in so many trays. May be used from any thread.

    A tray is taken until nothing in this process refers to its array any more; so whoever passes one on keeps the
    array until the other side has done with it.
    """

    def __init__(self, count: int = _TRAYS, size: int = _TRAY_BYTES) -> None:
        self._size = size
        self.file = _open_nameless()
        os.ftruncate(self.file, count * size)  # takes no memory before it is written to
        self._memory = memoryview(mmap.mmap(self.file, count * size))
        self._first = _address(np.frombuffer(self._memory, dtype=np.uint8))
        self._free = list(range(count - 1, -1, -1))  # a stack: the one given back last is the one in the caches

    def empty(self, shape: tuple[int, ...]) -> _Pixels:
        """Return a uint8 array with anything in it: in a free tray if it fits into one, else in memory of its own."""
        length = prod(shape)
        try:
            tray = self._free.pop() if 0 < length <= self._size else None
        except IndexError:
            tray = None
        if tray is None:
            return np.empty(shape, dtype=np.uint8)
        start = tray * self._size
        flat = np.frombuffer(self._memory[start : start + length], dtype=np.uint8)
        weakref.finalize(flat, self._free.append, tray).atexit = False  # every view of it refers to it
        return flat.reshape(shape)

    def start_of(self, pixels: _Pixels) -> int | None:
        """Return where an array that lies in one piece begins in the trays' memory; None if it lies elsewhere."""
        start = _address(pixels) - self._first
        return start if pixels.flags.c_contiguous and 0 <= start < len(self._memory) else None

    def close(self) -> None:
        """Let no other process have them any more; arrays stay what they are. Idempotent."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def map_trays(file: int) -> _Pixels:
    """Map the front's trays, flat, and close the descriptor.

    They can be written to, as torch takes no array that cannot without a copy; nobody does.
    """
    try:
        return np.frombuffer(mmap.mmap(file, 0), dtype=np.uint8)
    finally:
        os.close(file)


@contextlib.contextmanager
def laid_out(image: Crops | Image) -> Iterator[tuple[int, Layout]]:
    """Copy the pixels into a file in memory; gives its descriptor, good within the `with`, and the layout."""
    file = _open_nameless()
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            writer.write(np.ascontiguousarray(image.pixels).data)
        yield file, Layout.of(image)
    finally:
        os.close(file)


def pick_up(layout: Layout, file: int | None, trays: _Pixels | None) -> Crops | Image:
    """Return the image whose pixels are in the trays, or in a file, whose descriptor is closed.

    The file's memory is freed with the image.
    """
    if layout.start is not None:
        assert trays is not None, "a front that has trays shows them first"
        return layout.image(trays[layout.start : layout.start + prod(layout.shape)])
    assert file is not None, "pixels come with the request"
    try:
        pixels = mmap.mmap(file, 0)
    finally:
        os.close(file)
    return layout.image(np.frombuffer(pixels, dtype=np.uint8))


def _address(array: _Pixels) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pixels")
    with tempfile.TemporaryFile() as file:  # systems other than Linux
        return os.dup(file.fileno())
