import gc
import os
from pathlib import Path

import numpy as np
import pytest

from stoop_worker.audio import Mel
from stoop_worker.engine.request import Media, images_of
from stoop_worker.engine_process.pixels import SharedPixels, as_memfd, map_images, map_segments
from stoop_worker.images import Crops, Image, Tiling


def crops() -> Crops:
    pixels = np.arange(3 * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 8, 8, 3)
    return Crops(pixels, Tiling(1, 2), b"digest")


def share(*media: Media) -> tuple[Media, ...]:
    """Return the images as the other side has them, none of them in a segment."""
    shared_pixels = SharedPixels(count=1, size=10)
    try:
        with as_memfd(media, shared_pixels) as (layouts, file):
            return map_images(layouts, None if file is None else os.dup(file), None)
    finally:
        shared_pixels.close()


def test_a_shared_image_arrives_unchanged() -> None:
    (found,) = share(crops())
    assert isinstance(found, Crops)
    assert np.array_equal(found.pixels, crops().pixels)
    assert (found.tiling, found.digest) == (Tiling(1, 2), b"digest")


def test_pixels_that_do_not_lie_in_one_piece_are_copied_as_they_are_seen() -> None:
    whole = crops()
    mirrored = Crops(whole.pixels[:, :, ::-1], whole.tiling, whole.digest)
    (found,) = share(mirrored)
    assert np.array_equal(found.pixels, mirrored.pixels)


def test_several_images_come_in_their_order_from_segments_and_a_file(shared_pixels: SharedPixels) -> None:
    in_segment = Image(shared_pixels.empty((4, 5, 3)), b"two")
    in_segment.pixels[...] = 7
    media = (crops(), in_segment, Image(np.full((3, 3, 3), 9, dtype=np.uint8), b"three"))
    segments = map_segments(os.dup(shared_pixels.file))
    with as_memfd(media, shared_pixels) as (layouts, file):
        assert file is not None
        found = map_images(layouts, os.dup(file), segments)
    assert [image.digest for image in found] == [b"digest", b"two", b"three"]
    for ours, theirs in zip(images_of(found), media, strict=True):
        assert np.array_equal(ours.pixels, theirs.pixels)
    assert share() == ()


def test_frames_of_sound_arrive_unchanged_from_a_segment_and_from_a_file(shared_pixels: SharedPixels) -> None:
    in_segment = Mel(shared_pixels.empty((4, 6 * 4)).view(np.float32), b"one")
    in_segment.frames[...] = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    in_file = Mel.of(np.full((4, 6), 0.25, dtype=np.float32), content=5)
    segments = map_segments(os.dup(shared_pixels.file))
    with as_memfd((in_file, in_segment), shared_pixels) as (layouts, file):
        assert file is not None
        found = map_images(layouts, os.dup(file), segments)
    for ours, theirs in zip(found, (in_file, in_segment), strict=True):
        assert isinstance(ours, Mel)
        assert (ours.digest, ours.content) == (theirs.digest, theirs.content)
        np.testing.assert_array_equal(ours.frames, theirs.frames)


def test_nothing_is_left_when_the_crops_go() -> None:
    def mapped() -> bool:
        return "memfd:pixels" in Path("/proc/self/maps").read_text()

    gc.collect()  # of other tests
    found = share(crops())
    assert mapped()
    assert {path.name for path in Path("/dev/shm").glob("*crops*")} == set()
    del found
    assert not mapped()


@pytest.fixture
def shared_pixels() -> SharedPixels:
    return SharedPixels(count=2, size=1000)


def test_the_other_side_sees_a_segment(shared_pixels: SharedPixels) -> None:
    segments = map_segments(os.dup(shared_pixels.file))
    images = [
        Image(shared_pixels.empty((4, 5, 3)), b"one"),
        Crops(shared_pixels.empty((2, 8, 8, 3)), Tiling(1, 1), b"two"),
    ]
    for number, image in enumerate(images):
        image.pixels[...] = np.arange(image.pixels.size).reshape(image.pixels.shape) + number
    for image in images:
        with as_memfd([image], shared_pixels) as (layouts, file):
            assert file is None
            (found,) = map_images(layouts, None, segments)
        assert type(found) is type(image)
        assert found.digest == image.digest
        assert np.array_equal(found.pixels, image.pixels)
        assert found.pixels.flags.writeable  # or torch would want a copy


def test_a_segment_is_used_again_when_nothing_refers_to_its_array(shared_pixels: SharedPixels) -> None:
    first, second = shared_pixels.empty((10,)), shared_pixels.empty((4, 5, 3))
    starts = [shared_pixels.start_of(first), shared_pixels.start_of(second)]
    assert sorted(map(str, starts)) == ["0", "1000"]
    view = second[1:, :, ::-1]
    del second
    assert shared_pixels.start_of(shared_pixels.empty((10,))) is None  # the view keeps it
    del view
    assert shared_pixels.start_of(shared_pixels.empty((10,))) == starts[1]


def test_what_fits_into_no_segment_is_an_array_like_any_other(shared_pixels: SharedPixels) -> None:
    for shape in ((1001,), (2, 1000, 3), (0, 3)):
        pixels = shared_pixels.empty(shape)
        assert (pixels.shape, pixels.dtype) == (shape, np.uint8)
        assert shared_pixels.start_of(pixels) is None
    assert shared_pixels.start_of(shared_pixels.empty((1000,))) is not None


def test_the_other_side_sees_what_fits_into_no_segment_without_a_copy(shared_pixels: SharedPixels) -> None:
    image = Image(shared_pixels.empty((40, 50, 3)), b"large")
    file = shared_pixels.file_of(image.pixels)
    assert file is not None
    with as_memfd((image,), shared_pixels) as (layouts, passed_on):
        assert passed_on == file
        [found] = map_images(layouts, os.dup(file), None)
    image.pixels[...] = 7  # after it was passed on: both see the same memory
    assert np.array_equal(found.pixels, np.full((40, 50, 3), 7))


def test_a_file_is_closed_with_its_array(shared_pixels: SharedPixels) -> None:
    pixels = shared_pixels.empty((40, 50, 3))
    file = shared_pixels.file_of(pixels)
    view = pixels[1:]
    del pixels
    assert file is not None
    os.fstat(file)
    del view
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    assert shared_pixels.file_of(np.zeros((40, 50, 3), dtype=np.uint8)) is None


def test_pixels_in_other_places_are_in_no_segment(shared_pixels: SharedPixels) -> None:
    assert shared_pixels.start_of(np.zeros((4, 5, 3), dtype=np.uint8)) is None
    in_pieces = shared_pixels.empty((10, 10, 3))[:, ::2]
    assert shared_pixels.start_of(in_pieces) is None


def test_closing_leaves_the_arrays_and_no_descriptor(shared_pixels: SharedPixels) -> None:
    pixels, file = shared_pixels.empty((10,)), shared_pixels.file
    pixels[:] = 7
    shared_pixels.close()
    shared_pixels.close()
    assert pixels.tolist() == [7] * 10
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
