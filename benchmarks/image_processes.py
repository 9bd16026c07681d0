"""JPEGs to what the engine takes, here or in processes beside: their pixels come back as memory that is mapped."""

import mmap
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from worker.images import CropGeometry, Crops, Image, ImageLimits, Tiling, cut, load

__all__ = ["ImageProcesses", "prepare"]

_Left = tuple[str, tuple[int, ...], Tiling | None, bytes]
"""A file of pixels, their shape, the tiling if they are crops, and the digest."""


def prepare(jpeg: bytes, geometry: CropGeometry, on_device: bool) -> Crops | Image:
    """Load a JPEG; cut it into crops here, unless the device is to do that."""
    image = load(jpeg, ImageLimits())
    return image if on_device else cut(image, geometry)


class ImageProcesses:
    """Prepares images in so many processes."""

    def __init__(self, count: int) -> None:
        # forked, for a spawned process would import all of the benchmark; none of them touches the device
        self._pool = ProcessPoolExecutor(count, mp_context=get_context("fork"))
        list(self._pool.map(abs, range(4 * count)))  # all are up before anything is timed

    def prepare(self, jpeg: bytes, geometry: CropGeometry, on_device: bool) -> Crops | Image:
        """Do what `prepare` does, and wait for it."""
        path, shape, tiling, digest = self._pool.submit(_leave, jpeg, geometry, on_device).result()
        with Path(path).open("rb") as file:
            os.unlink(path)  # noqa: PTH108 (the mapping keeps it)
            pixels = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8).reshape(shape)
        return Image(pixels, digest) if tiling is None else Crops(pixels, tiling, digest)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)


def _leave(jpeg: bytes, geometry: CropGeometry, on_device: bool) -> _Left:
    """Prepare an image and leave its pixels in a file in memory."""
    image = prepare(jpeg, geometry, on_device)
    memory = Path("/dev/shm")
    file, path = tempfile.mkstemp(dir=memory if memory.is_dir() else None)
    with os.fdopen(file, "wb") as writer:
        writer.write(np.ascontiguousarray(image.pixels).data)
    return path, image.pixels.shape, image.tiling if isinstance(image, Crops) else None, image.digest
