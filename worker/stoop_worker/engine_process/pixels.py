"""Pixels and frames of sound in memory that the front and its engine's process share, in files without a name.

Most lie in one file, which both map once and reuse for many images. The first touch of new shared memory and its
release are expensive: for a photo of 12 megapixels they take 30 ms, and decoding it into used memory takes 40 ms. An
image that does not fit gets its own file, which is passed on by its descriptor, so that the pixels are in memory once.
Files without a name leave nothing behind: the system frees the memory when the last process that has it open or mapped
closes it, however that process ends.
"""

import contextlib
import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import structlog

from stoop_worker.audio import Mel
from stoop_worker.engine.request import Media
from stoop_worker.engine_process.extents import Extent, Extents, whole_pages
from stoop_worker.images import Crops, Image, Jpeg, Tiling, bytes_of_picture

__all__ = ["Layout", "SharedPixels", "as_memfd", "bytes_of", "layouts_of", "map_images", "map_shared"]

_Pixels = npt.NDArray[np.uint8]

_BYTES = 256 << 20
_KEPT_BYTES = 128 << 20
_FLOAT_BYTES = 4
_LIBC = ctypes.CDLL(None, use_errno=True)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of `Crops`, `Image`, `Jpeg` or `Mel` other than the values, and their shape.

    Only `Crops` have a tiling. `fitted` is an image's, and `decoded_size` a JPEG's. The values are float32 if `sound`
    is set, with `content` frames of audio, and otherwise bytes. They begin at byte `start` of the shared file, or of
    the file that comes with the request.
    """

    shape: tuple[int, ...]
    tiling: Tiling | None
    digest: bytes
    start: int = 0
    shared: bool = False
    sound: bool = False
    content: int = 0
    fitted: tuple[int, int] | None = None
    decoded_size: tuple[int, int] | None = None

    @classmethod
    def of(cls, image: Media, start: int = 0, *, shared: bool = False) -> "Layout":
        """Return the layout of an image, or of frames."""
        if isinstance(image, Mel):
            return cls(image.frames.shape, None, image.digest, start, shared, sound=True, content=image.content)
        if isinstance(image, Crops):
            return cls(image.pixels.shape, image.tiling, image.digest, start, shared)
        if isinstance(image, Jpeg):
            shape, size = image.encoded.shape, image.decoded_size
            return cls(shape, None, image.digest, start, shared, fitted=image.fitted, decoded_size=size)
        return cls(image.pixels.shape, None, image.digest, start, shared, fitted=image.fitted)

    @property
    def size(self) -> int:
        """The size of the values in bytes."""
        return prod(self.shape) * (_FLOAT_BYTES if self.sound else 1)

    def image(self, pixels: _Pixels) -> Media:
        """Rebuild the image or the frames on their bytes, which may be flat."""
        if self.sound:
            frames = pixels.view(np.float32).reshape(self.shape)
            return Mel(frames, self.digest, self.content)
        shaped = pixels.reshape(self.shape)
        if self.decoded_size is not None:
            return Jpeg(shaped, self.decoded_size, self.digest, self.fitted)
        if self.tiling is None:
            return Image(shaped, self.digest, self.fitted)
        return Crops(pixels=shaped, tiling=self.tiling, digest=self.digest)


class SharedPixels:
    """The front's side: arrays in one file of `size` bytes. Any thread may use it.

    An array's memory is free again once nothing in this process refers to the array. The sender must therefore keep the
    array until the other side is done with it. `trim` leaves the first `kept` bytes of the file alone.
    """

    def __init__(self, size: int = _BYTES, *, kept: int = _KEPT_BYTES) -> None:
        size = whole_pages(size)
        self.file = _open_nameless()
        os.ftruncate(self.file, size)  # takes no memory until it is written to
        self._kept = kept
        self._memory = memoryview(mmap.mmap(self.file, size))
        self._first = _address(np.frombuffer(self._memory, dtype=np.uint8))
        self._extents = Extents(size)
        self._cannot_release = False
        self._files: dict[int, int] = {}  # by the address of the array's first byte

    def empty(self, shape: tuple[int, ...]) -> _Pixels:
        """Return an uninitialised uint8 array: in the shared file if it fits, otherwise in its own file."""
        length = prod(shape)
        if not length:
            return np.empty(shape, dtype=np.uint8)
        extent = self._extents.borrow(length)
        if extent is None:
            self._release(self._extents.borrow_idle())  # so that both files together hold no more than the arrays
            return self._in_own_file(length).reshape(shape)
        start = extent[0]
        flat = np.frombuffer(self._memory[start : start + length], dtype=np.uint8)
        weakref.finalize(flat, self._extents.give_back, extent).atexit = False  # every view of it refers to it
        return flat.reshape(shape)

    def trim(self) -> None:
        """Return free memory that was not lent since the last call to the system; blocks for milliseconds a photo."""
        self._release(self._extents.borrow_stale(self._kept))

    def _release(self, extents: Sequence[Extent]) -> None:
        for extent in extents:
            if failure := _free_memory(self._first + extent[0], extent[1] - extent[0]):
                self._extents.keep_touched(extent)  # the next call tries it again
                if not self._cannot_release:
                    log.warning(
                        "memory of decoded images cannot be returned to the system", reason=os.strerror(failure)
                    )
                self._cannot_release = True
            self._extents.give_back(extent)

    def start_of(self, pixels: _Pixels) -> int | None:
        """Return the start of a contiguous array in the shared file; None if it lies elsewhere."""
        start = _address(pixels) - self._first
        return start if pixels.flags.c_contiguous and 0 <= start < len(self._memory) else None

    def file_of(self, pixels: _Pixels) -> int | None:
        """Return the file that holds only this array, open as long as the array exists; None if it lies elsewhere."""
        return self._files.get(_address(pixels)) if pixels.flags.c_contiguous else None

    def _in_own_file(self, length: int) -> _Pixels:
        file = _open_nameless()
        try:
            os.ftruncate(file, length)
            flat = np.frombuffer(_mapped(file, length), dtype=np.uint8)
        except BaseException:
            os.close(file)
            raise
        self._files[_address(flat)] = file
        weakref.finalize(flat, self._close_file, _address(flat)).atexit = False
        return flat

    def _close_file(self, address: int) -> None:
        os.close(self._files.pop(address))

    def close(self) -> None:
        """Stop sharing the file with new processes; existing arrays stay valid. Idempotent."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


def bytes_of(media: Media) -> _Pixels:
    """Return the pixels or the bytes of an image, or the bytes of frames, without a copy."""
    return media.frames.view(np.uint8) if isinstance(media, Mel) else bytes_of_picture(media)


def map_shared(file: int) -> _Pixels:
    """Map the front's shared file, flat, and close the descriptor.

    The map is writable, because torch copies read-only arrays; no code writes to it.
    """
    return _map(file)


def layouts_of(media: Sequence[Media], shared: SharedPixels) -> tuple[Layout, ...] | None:
    """Return the layouts of images that all lie in the shared file; None if one of them lies elsewhere."""
    layouts = []
    for image in media:
        start = shared.start_of(bytes_of(image))
        if start is None:
            return None
        layouts.append(Layout.of(image, start, shared=True))
    return tuple(layouts)


@contextlib.contextmanager
def as_memfd(media: Sequence[Media], shared: SharedPixels) -> Iterator[tuple[tuple[Layout, ...], int | None]]:
    """Yield the layouts of images, and the file of those outside the shared file; None if there are none.

    A single image with its own file is passed on without a copy; several are copied into one file. The descriptor is
    valid only within the `with`.
    """
    layouts, copied, size = [], [], 0
    for image in media:
        if (start := shared.start_of(pixels := bytes_of(image))) is not None:
            layouts.append(Layout.of(image, start, shared=True))
        else:
            layouts.append(Layout.of(image, size))
            copied.append(pixels)
            size += pixels.nbytes
    own = shared.file_of(copied[0]) if len(copied) == 1 else None
    if own is not None or not copied:
        yield tuple(layouts), own
        return
    file = _open_nameless()
    try:
        with os.fdopen(file, "wb", closefd=False) as writer:
            for pixels in copied:
                writer.write(np.ascontiguousarray(pixels).data)
        yield tuple(layouts), file
    finally:
        os.close(file)


def map_images(layouts: Sequence[Layout], file: int | None, shared: _Pixels | None) -> tuple[Media, ...]:
    """Return the images whose pixels are in the shared file or in `file`, and close the file's descriptor.

    The file's memory is freed with the last of its images.
    """
    copied = None if file is None else _map(file)
    return tuple(_image(layout, shared if layout.shared else copied) for layout in layouts)


def _image(layout: Layout, memory: _Pixels | None) -> Media:
    assert memory is not None, "the front sends its shared file first, and other pixels come with the request"
    return layout.image(memory[layout.start : layout.start + layout.size])


def _map(file: int) -> _Pixels:
    try:
        return np.frombuffer(_mapped(file), dtype=np.uint8)
    finally:
        os.close(file)


def _mapped(file: int, length: int = 0) -> mmap.mmap:
    """Map a file, the whole of it by default."""
    if sys.version_info >= (3, 13):
        mapped = mmap.mmap(file, length, trackfd=False)
    else:  # it keeps a duplicate of the descriptor for as long as the map exists, and cannot close it before
        mapped = mmap.mmap(file, length)
    return mapped


def _free_memory(address: int, length: int) -> int:
    """Return these bytes of a shared file to the system; return the number of the error, or 0."""
    if not hasattr(mmap, "MADV_REMOVE"):  # systems other than Linux
        return 0
    # unlike `mmap.madvise`, it leaves the interpreter to other threads meanwhile
    failed = _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), mmap.MADV_REMOVE)
    return ctypes.get_errno() if failed else 0


def _address(array: _Pixels) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _open_nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("pixels")
    with tempfile.TemporaryFile() as file:  # systems other than Linux
        return os.dup(file.fileno())
