import os
from pathlib import Path

import numpy as np
import pytest

from worker.engine_process.pixels import laid_out, pick_up
from worker.images import Crops, Tiling


def crops() -> Crops:
    pixels = np.arange(3 * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 8, 8, 3)
    return Crops(pixels, Tiling(1, 2), b"digest")


def test_what_is_picked_up_is_what_was_laid_out() -> None:
    with laid_out(crops()) as (file, layout):
        found = pick_up(os.dup(file), layout)
    assert np.array_equal(found.pixels, crops().pixels)
    assert (found.tiling, found.digest) == (Tiling(1, 2), b"digest")


def test_pixels_that_do_not_lie_in_one_piece_are_copied_as_they_are_seen() -> None:
    whole = crops()
    mirrored = Crops(whole.pixels[:, :, ::-1], whole.tiling, whole.digest)
    with laid_out(mirrored) as (file, layout):
        assert np.array_equal(pick_up(os.dup(file), layout).pixels, mirrored.pixels)


def test_they_cannot_be_written_to() -> None:
    with laid_out(crops()) as (file, layout):
        found = pick_up(os.dup(file), layout)
    with pytest.raises(ValueError, match="read-only"):
        found.pixels[0] = 0


def test_nothing_is_left_when_the_crops_go() -> None:
    def mapped() -> bool:
        return "memfd:pixels" in Path("/proc/self/maps").read_text()

    with laid_out(crops()) as (file, layout):
        found = pick_up(os.dup(file), layout)
    assert mapped()
    assert {path.name for path in Path("/dev/shm").glob("*crops*")} == set()
    del found
    assert not mapped()
