"""Prepares JPEGs for the engine, here or in other processes, which store pixels in shared memory as a front does."""

import gc
import os
from math import prod
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from stoop_worker.engine_process.pixels import Layout, SharedPixels, map_shared
from stoop_worker.images import Crops, Image, ImageLimits, Picture, Preparation, left_undecoded, load, made_ready

__all__ = ["ImageProcesses", "prepare"]

_SEGMENTS = 256  # one for each request in flight under the largest load
_SEGMENT_BYTES = 4 << 20

_Pixels = npt.NDArray[np.uint8]
_Task = tuple[bytes, Preparation, bool, int | None]
"""A JPEG, its preparation, whether the device resizes it, and the start of a free segment."""
_Left = tuple[Layout, _Pixels | None]
"""The image's layout in its segment; the pixels themselves if it does not fit."""


def prepare(jpeg: bytes, geometry: Preparation, on_device: bool, *, undecoded: bool = False) -> Picture:
    """Load a JPEG, and cut or resize it as the family wants; None leaves it to the device.

    An `undecoded` one is left to the device as it is.
    """
    if undecoded:
        left = left_undecoded(jpeg, ImageLimits())
        assert left is not None, "a GPU decodes all photos of the benchmarks"
        return left
    return made_ready(load(jpeg, ImageLimits()), geometry, on_device=on_device)


class ImageProcesses:
    """Prepares images in `count` processes; each waiting thread has one to itself."""

    def __init__(self, count: int) -> None:
        self._shared_pixels = SharedPixels(_SEGMENTS * _SEGMENT_BYTES)
        # forked, because a spawned process would import the whole benchmark; none of them touches the device
        fork = get_context("fork")
        pipes = [fork.Pipe() for _ in range(count)]
        ours = [pipe[0] for pipe in pipes]
        self._processes = [
            fork.Process(target=_serve, args=(theirs, ours, self._shared_pixels), daemon=True) for _, theirs in pipes
        ]
        self._lines: SimpleQueue[Connection] = SimpleQueue()
        gc.freeze()  # a process that collected tensors of the device would end: it has no part in the device
        for process, (line, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()
            line.recv()  # all have started before anything is timed
            self._lines.put(line)
        gc.unfreeze()

    def prepare(self, jpeg: bytes, geometry: Preparation, on_device: bool) -> Picture:
        """Run `prepare` in a process; the segment is free again when the image is deleted."""
        segment = self._shared_pixels.empty((_SEGMENT_BYTES,))
        task: _Task = (jpeg, geometry, on_device, self._shared_pixels.start_of(segment))
        line = self._lines.get()
        line.send(task)
        left: _Left | Exception = line.recv()
        self._lines.put(line)
        if isinstance(left, Exception):
            raise left
        layout, pixels = left
        return layout.image(segment[: prod(layout.shape)] if pixels is None else pixels)

    def close(self) -> None:
        """End the processes once no thread waits for one."""
        for _ in self._processes:
            self._lines.get().close()
        for process in self._processes:
            process.join()
        self._shared_pixels.close()


def _serve(line: Connection, inherited: list[Connection], shared_pixels: SharedPixels) -> None:
    """Prepare images until the other end is closed."""
    for other in inherited:
        other.close()
    memory = map_shared(os.dup(shared_pixels.file))
    line.send("up")
    while True:
        try:
            task: _Task = line.recv()
        except EOFError:
            return
        try:
            line.send(_leave(task, memory))
        except Exception as error:  # passed on to the waiting thread
            line.send(error)


def _leave(task: _Task, memory: _Pixels) -> _Left:
    """Prepare an image, with its pixels in its segment if they fit."""
    jpeg, geometry, on_device, start = task

    def allocate(shape: tuple[int, ...]) -> _Pixels:
        if start is None or prod(shape) > _SEGMENT_BYTES:
            return np.empty(shape, dtype=np.uint8)
        return memory[start : start + prod(shape)].reshape(shape)

    image: Crops | Image
    if on_device:
        image = made_ready(load(jpeg, ImageLimits(), allocate), geometry, on_device=True)
    else:
        cut_here = made_ready(load(jpeg, ImageLimits()), geometry)
        image = Layout.of(cut_here).image(allocate(cut_here.pixels.shape))
        image.pixels[...] = cut_here.pixels
    in_segment = image.pixels.base is memory
    return Layout.of(image), None if in_segment else image.pixels
