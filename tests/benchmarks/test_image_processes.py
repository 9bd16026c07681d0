import gc
import os
from collections.abc import Iterator
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from benchmarks.engine import image_processes
from benchmarks.engine.image_processes import ImageProcesses, prepare
from benchmarks.engine.photos import LARGE, SMALL, Format, draw_photo
from stoop_worker.errors import ImageUndecodable
from stoop_worker.images import CropGeometry

GEOMETRY = CropGeometry()


@pytest.fixture(scope="module")
def processes() -> Iterator[ImageProcesses]:
    processes = ImageProcesses(2)
    yield processes
    processes.close()


@pytest.mark.parametrize(("geometry", "on_device"), [(None, True), (GEOMETRY, False)])
@pytest.mark.parametrize("shape", [LARGE, SMALL, Format(1500, 1100)])
def test_other_processes_prepare_the_same_image_as_this_one(
    processes: ImageProcesses, shape: Format, geometry: CropGeometry | None, on_device: bool
) -> None:
    jpegs = [draw_photo(number, shape) for number in range(3)]
    found = [processes.prepare(jpeg, geometry, on_device) for jpeg in jpegs]
    for jpeg, image in zip(jpegs, found, strict=True):
        expected = prepare(jpeg, geometry, on_device)
        assert (type(image), image.digest) == (type(expected), expected.digest)
        assert np.array_equal(image.pixels, expected.pixels)


def test_more_images_than_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_processes, "_SEGMENTS", 2)
    processes = ImageProcesses(1)
    jpegs = [draw_photo(number, SMALL) for number in range(4)]
    found = [processes.prepare(jpeg, GEOMETRY, True) for jpeg in jpegs]
    for jpeg, image in zip(jpegs, found, strict=True):
        assert np.array_equal(image.pixels, prepare(jpeg, GEOMETRY, True).pixels)
    processes.close()


def test_a_fault_is_reported(processes: ImageProcesses) -> None:
    with pytest.raises(ImageUndecodable):
        processes.prepare(b"no JPEG", GEOMETRY, True)
    assert processes.prepare(draw_photo(1, SMALL), GEOMETRY, True).pixels.any()


def test_processes_leave_what_their_parent_held(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Pipe()

    class Held:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            theirs.send(os.getpid())

    def collecting(*given: Any) -> Any:
        gc.collect()
        return prepare(*given)

    monkeypatch.setattr(image_processes, "prepare", collecting)
    Held()
    processes = ImageProcesses(1)
    processes.prepare(draw_photo(0, SMALL), GEOMETRY, False)
    processes.close()
    gc.collect()
    assert ours.recv() == os.getpid()
