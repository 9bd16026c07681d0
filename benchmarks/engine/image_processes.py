"""JPEGs to what the engine takes, here or in processes beside, which leave pixels where a worker's front does."""

import os
from math import prod
from multiprocessing import get_context
from multiprocessing.connection import Connection
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from worker.engine_process.pixels import Layout, Trays, map_trays
from worker.images import CropGeometry, Crops, Image, ImageLimits, cut, load

__all__ = ["ImageProcesses", "prepare"]

_TRAYS = 256  # one for each request that the largest load has in flight
_TRAY_BYTES = 4 << 20

_Pixels = npt.NDArray[np.uint8]
_Task = tuple[bytes, CropGeometry, bool, int | None]
"""A JPEG, how it is cut, whether that is left to the device, and where in the trays there is room for it."""
_Left = tuple[Layout, _Pixels | None]
"""How the image lies in its tray; one that did not fit brings its pixels along."""


def prepare(jpeg: bytes, geometry: CropGeometry, on_device: bool) -> Crops | Image:
    """Load a JPEG; cut it into crops here, unless the device is to do that."""
    image = load(jpeg, ImageLimits())
    return image if on_device else cut(image, geometry)


class ImageProcesses:
    """Prepares images in so many processes; a thread that waits for one has it for itself."""

    def __init__(self, count: int) -> None:
        self._trays = Trays(_TRAYS, _TRAY_BYTES)
        # forked, for a spawned process would import all of the benchmark; none of them touches the device
        fork = get_context("fork")
        pipes = [fork.Pipe() for _ in range(count)]
        ours = [pipe[0] for pipe in pipes]
        self._processes = [
            fork.Process(target=_serve, args=(theirs, ours, self._trays), daemon=True) for _, theirs in pipes
        ]
        self._lines: SimpleQueue[Connection] = SimpleQueue()
        for process, (line, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()
            line.recv()  # all are up before anything is timed
            self._lines.put(line)

    def prepare(self, jpeg: bytes, geometry: CropGeometry, on_device: bool) -> Crops | Image:
        """Do what `prepare` does, and wait for it; the tray is free again when the image is gone."""
        tray = self._trays.empty((_TRAY_BYTES,))
        task: _Task = (jpeg, geometry, on_device, self._trays.start_of(tray))
        line = self._lines.get()
        line.send(task)
        left: _Left | Exception = line.recv()
        self._lines.put(line)
        if isinstance(left, Exception):
            raise left
        layout, pixels = left
        return layout.image(tray[: prod(layout.shape)] if pixels is None else pixels)

    def close(self) -> None:
        """End the processes, once nobody waits for one any more."""
        for _ in self._processes:
            self._lines.get().close()
        for process in self._processes:
            process.join()
        self._trays.close()


def _serve(line: Connection, inherited: list[Connection], trays: Trays) -> None:
    """Prepare images until the other end is closed."""
    for other in inherited:
        other.close()
    memory = map_trays(os.dup(trays.file))
    line.send("up")
    while True:
        try:
            task: _Task = line.recv()
        except EOFError:
            return
        try:
            line.send(_leave(task, memory))
        except Exception as error:  # whoever waits is to hear of it
            line.send(error)


def _leave(task: _Task, memory: _Pixels) -> _Left:
    """Prepare an image with its pixels in its tray, if there is room for them."""
    jpeg, geometry, on_device, start = task

    def allocate(shape: tuple[int, ...]) -> _Pixels:
        if start is None or prod(shape) > _TRAY_BYTES:
            return np.empty(shape, dtype=np.uint8)
        return memory[start : start + prod(shape)].reshape(shape)

    image: Crops | Image
    if on_device:
        image = load(jpeg, ImageLimits(), allocate)
    else:
        cut_here = prepare(jpeg, geometry, on_device)
        image = Layout.of(cut_here).image(allocate(cut_here.pixels.shape))
        image.pixels[...] = cut_here.pixels
    in_tray = image.pixels.base is memory
    return Layout.of(image), None if in_tray else image.pixels
