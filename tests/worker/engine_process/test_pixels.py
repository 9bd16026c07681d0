import gc
import os
from pathlib import Path

import numpy as np
import pytest

from stoop_worker.engine.request import Media
from stoop_worker.engine_process.pixels import Trays, laid_out, map_trays, pick_up
from stoop_worker.images import Crops, Image, Tiling


def crops() -> Crops:
    pixels = np.arange(3 * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 8, 8, 3)
    return Crops(pixels, Tiling(1, 2), b"digest")


def lay_out_and_pick_up(*media: Media) -> tuple[Media, ...]:
    """Return the images as the other side has them, none of them being in a tray."""
    trays = Trays(count=1, size=10)
    try:
        with laid_out(media, trays) as (layouts, file):
            return pick_up(layouts, None if file is None else os.dup(file), None)
    finally:
        trays.close()


def test_what_is_picked_up_is_what_was_laid_out() -> None:
    (found,) = lay_out_and_pick_up(crops())
    assert isinstance(found, Crops)
    assert np.array_equal(found.pixels, crops().pixels)
    assert (found.tiling, found.digest) == (Tiling(1, 2), b"digest")


def test_pixels_that_do_not_lie_in_one_piece_are_copied_as_they_are_seen() -> None:
    whole = crops()
    mirrored = Crops(whole.pixels[:, :, ::-1], whole.tiling, whole.digest)
    (found,) = lay_out_and_pick_up(mirrored)
    assert np.array_equal(found.pixels, mirrored.pixels)


def test_several_images_come_in_their_order_from_trays_and_a_file(trays: Trays) -> None:
    in_tray = Image(trays.empty((4, 5, 3)), b"two")
    in_tray.pixels[...] = 7
    media = (crops(), in_tray, Image(np.full((3, 3, 3), 9, dtype=np.uint8), b"three"))
    shared = map_trays(os.dup(trays.file))
    with laid_out(media, trays) as (layouts, file):
        assert file is not None
        found = pick_up(layouts, os.dup(file), shared)
    assert [image.digest for image in found] == [b"digest", b"two", b"three"]
    for ours, theirs in zip(found, media, strict=True):
        assert np.array_equal(ours.pixels, theirs.pixels)
    assert lay_out_and_pick_up() == ()


def test_nothing_is_left_when_the_crops_go() -> None:
    def mapped() -> bool:
        return "memfd:pixels" in Path("/proc/self/maps").read_text()

    gc.collect()  # of other tests
    found = lay_out_and_pick_up(crops())
    assert mapped()
    assert {path.name for path in Path("/dev/shm").glob("*crops*")} == set()
    del found
    assert not mapped()


@pytest.fixture
def trays() -> Trays:
    return Trays(count=2, size=1000)


def test_the_other_side_sees_what_is_in_a_tray(trays: Trays) -> None:
    shared = map_trays(os.dup(trays.file))
    images = [Image(trays.empty((4, 5, 3)), b"one"), Crops(trays.empty((2, 8, 8, 3)), Tiling(1, 1), b"two")]
    for number, image in enumerate(images):
        image.pixels[...] = np.arange(image.pixels.size).reshape(image.pixels.shape) + number
    for image in images:
        with laid_out([image], trays) as (layouts, file):
            assert file is None
            (found,) = pick_up(layouts, None, shared)
        assert type(found) is type(image)
        assert found.digest == image.digest
        assert np.array_equal(found.pixels, image.pixels)
        assert found.pixels.flags.writeable  # or torch would want a copy


def test_a_tray_is_used_again_when_nothing_refers_to_its_array(trays: Trays) -> None:
    first, second = trays.empty((10,)), trays.empty((4, 5, 3))
    starts = [trays.start_of(first), trays.start_of(second)]
    assert sorted(map(str, starts)) == ["0", "1000"]
    view = second[1:, :, ::-1]
    del second
    assert trays.start_of(trays.empty((10,))) is None  # the view keeps it
    del view
    assert trays.start_of(trays.empty((10,))) == starts[1]


def test_what_fits_into_no_tray_is_an_array_like_any_other(trays: Trays) -> None:
    for shape in ((1001,), (2, 1000, 3), (0, 3)):
        pixels = trays.empty(shape)
        assert (pixels.shape, pixels.dtype) == (shape, np.uint8)
        assert trays.start_of(pixels) is None
    assert trays.start_of(trays.empty((1000,))) is not None


def test_the_other_side_sees_what_fits_into_no_tray_without_a_copy(trays: Trays) -> None:
    image = Image(trays.empty((40, 50, 3)), b"large")
    file = trays.file_of(image.pixels)
    assert file is not None
    with laid_out((image,), trays) as (layouts, passed_on):
        assert passed_on == file
        [found] = pick_up(layouts, os.dup(file), None)
    image.pixels[...] = 7  # after it was passed on: both see the same memory
    assert np.array_equal(found.pixels, np.full((40, 50, 3), 7))


def test_a_file_is_closed_with_its_array(trays: Trays) -> None:
    pixels = trays.empty((40, 50, 3))
    file = trays.file_of(pixels)
    view = pixels[1:]
    del pixels
    assert file is not None
    os.fstat(file)
    del view
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    assert trays.file_of(np.zeros((40, 50, 3), dtype=np.uint8)) is None


def test_pixels_in_other_places_are_in_no_tray(trays: Trays) -> None:
    assert trays.start_of(np.zeros((4, 5, 3), dtype=np.uint8)) is None
    in_pieces = trays.empty((10, 10, 3))[:, ::2]
    assert trays.start_of(in_pieces) is None


def test_closing_leaves_the_arrays_and_no_descriptor(trays: Trays) -> None:
    pixels, file = trays.empty((10,)), trays.file
    pixels[:] = 7
    trays.close()
    trays.close()
    assert pixels.tolist() == [7] * 10
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
