import contextlib
import ctypes
import errno
import gc
import mmap
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from structlog.testing import capture_logs

from stoop_worker.audio import Mel
from stoop_worker.engine.request import Media, images_of
from stoop_worker.engine_process import pixels as pixels_module
from stoop_worker.engine_process.pixels import SharedPixels, as_memfd, map_images, map_shared
from stoop_worker.images import Crops, Image, Jpeg, Tiling

PAGE = mmap.PAGESIZE


def crops() -> Crops:
    pixels = np.arange(3 * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(3, 8, 8, 3)
    return Crops(pixels, Tiling(1, 2), b"digest")


def share(*media: Media) -> tuple[Media, ...]:
    """Return the images as the other side has them, none of them in the shared file."""
    shared_pixels = SharedPixels(1)
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


def test_the_size_that_a_device_fits_an_image_to_arrives_with_it() -> None:
    (found,) = share(Image(np.zeros((5, 7, 3), dtype=np.uint8), b"digest", (4, 8)))
    assert isinstance(found, Image)
    assert found.pixels.shape == (5, 7, 3) and found.size == (4, 8)


def test_a_jpeg_arrives_undecoded(shared_pixels: SharedPixels) -> None:
    in_shared_file = Jpeg(shared_pixels.empty((7,)), (30, 20), b"one")
    in_shared_file.encoded[...] = np.arange(7)
    in_file = Jpeg(np.arange(9, dtype=np.uint8), (50, 40), b"two", (32, 32))
    shared_file = map_shared(os.dup(shared_pixels.file))
    with as_memfd((in_shared_file, in_file), shared_pixels) as (layouts, file):
        assert file is not None
        found = map_images(layouts, os.dup(file), shared_file)
    for ours, theirs in zip(found, (in_shared_file, in_file), strict=True):
        assert isinstance(ours, Jpeg)
        assert np.array_equal(ours.encoded, theirs.encoded)
        assert (ours.digest, ours.decoded_size, ours.size) == (theirs.digest, theirs.decoded_size, theirs.size)


def test_pixels_that_do_not_lie_in_one_piece_are_copied_as_they_are_seen() -> None:
    whole = crops()
    mirrored = Crops(whole.pixels[:, :, ::-1], whole.tiling, whole.digest)
    (found,) = share(mirrored)
    assert np.array_equal(found.pixels, mirrored.pixels)


def test_several_images_come_in_their_order_from_the_shared_file_and_another(shared_pixels: SharedPixels) -> None:
    in_shared_file = Image(shared_pixels.empty((4, 5, 3)), b"two")
    in_shared_file.pixels[...] = 7
    media = (crops(), in_shared_file, Image(np.full((3, 3, 3), 9, dtype=np.uint8), b"three"))
    shared_file = map_shared(os.dup(shared_pixels.file))
    with as_memfd(media, shared_pixels) as (layouts, file):
        assert file is not None
        found = map_images(layouts, os.dup(file), shared_file)
    assert [image.digest for image in found] == [b"digest", b"two", b"three"]
    for ours, theirs in zip(images_of(found), media, strict=True):
        assert np.array_equal(ours.pixels, theirs.pixels)
    assert share() == ()


def test_frames_of_sound_arrive_unchanged_from_the_shared_file_and_from_another(shared_pixels: SharedPixels) -> None:
    in_shared_file = Mel(shared_pixels.empty((4, 6 * 4)).view(np.float32), b"one")
    in_shared_file.frames[...] = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    in_file = Mel.of(np.full((4, 6), 0.25, dtype=np.float32), content=5)
    shared_file = map_shared(os.dup(shared_pixels.file))
    with as_memfd((in_file, in_shared_file), shared_pixels) as (layouts, file):
        assert file is not None
        found = map_images(layouts, os.dup(file), shared_file)
    for ours, theirs in zip(found, (in_file, in_shared_file), strict=True):
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
    return SharedPixels(2 * PAGE)


def test_the_other_side_sees_the_shared_file(shared_pixels: SharedPixels) -> None:
    shared_file = map_shared(os.dup(shared_pixels.file))
    images = [
        Image(shared_pixels.empty((4, 5, 3)), b"one"),
        Crops(shared_pixels.empty((2, 8, 8, 3)), Tiling(1, 1), b"two"),
    ]
    for number, image in enumerate(images):
        image.pixels[...] = np.arange(image.pixels.size).reshape(image.pixels.shape) + number
    for image in images:
        with as_memfd([image], shared_pixels) as (layouts, file):
            assert file is None
            (found,) = map_images(layouts, None, shared_file)
        assert type(found) is type(image)
        assert found.digest == image.digest
        assert np.array_equal(found.pixels, image.pixels)
        assert found.pixels.flags.writeable  # or torch would want a copy


def test_memory_is_used_again_when_nothing_refers_to_its_array(shared_pixels: SharedPixels) -> None:
    first, second = shared_pixels.empty((10,)), shared_pixels.empty((4, 5, 3))
    assert (shared_pixels.start_of(first), shared_pixels.start_of(second)) == (0, PAGE)
    view = second[1:, :, ::-1]
    del second
    assert shared_pixels.start_of(shared_pixels.empty((10,))) is None  # the view keeps it
    del view
    assert shared_pixels.start_of(shared_pixels.empty((10,))) == PAGE
    del first
    assert shared_pixels.start_of(shared_pixels.empty((2 * PAGE,))) == 0


def test_an_image_that_does_not_fit_is_an_ordinary_array(shared_pixels: SharedPixels) -> None:
    for shape in ((2 * PAGE + 1,), (2, PAGE, 3), (0, 3)):
        pixels = shared_pixels.empty(shape)
        assert (pixels.shape, pixels.dtype) == (shape, np.uint8)
        assert shared_pixels.start_of(pixels) is None
    assert shared_pixels.start_of(shared_pixels.empty((2 * PAGE,))) is not None


def held(shared_pixels: SharedPixels) -> int:
    """Return the bytes of memory that the shared file takes."""
    return 512 * os.fstat(shared_pixels.file).st_blocks


def test_unused_memory_goes_back_to_the_system_except_for_the_kept_part() -> None:
    shared_pixels = SharedPixels(8 * PAGE, kept=PAGE)
    theirs = map_shared(os.dup(shared_pixels.file))
    arrays = [shared_pixels.empty((2 * PAGE,)) for _ in range(3)]
    for number, array in enumerate(arrays):
        array[:] = 1 + number
    assert held(shared_pixels) == 6 * PAGE
    shared_pixels.trim()
    assert held(shared_pixels) == 6 * PAGE
    last = arrays.pop()
    del arrays, array
    shared_pixels.trim()
    assert held(shared_pixels) == 3 * PAGE
    assert theirs[4 * PAGE : 6 * PAGE].tolist() == last.tolist() == [3] * 2 * PAGE
    again = shared_pixels.empty((3 * PAGE,))
    again[:] = 9
    assert theirs[: 3 * PAGE].tolist() == [9] * 3 * PAGE
    del again, last
    shared_pixels.trim()
    assert held(shared_pixels) == 3 * PAGE  # it was lent since the last time
    shared_pixels.trim()
    assert held(shared_pixels) == PAGE


def test_memory_that_the_system_did_not_take_back_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_pixels = SharedPixels(4 * PAGE, kept=0)
    shared_pixels.empty((2 * PAGE,))[:] = 1
    shared_pixels.trim()  # it was lent since the last time

    def refuse(*given: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(pixels_module, "_LIBC", SimpleNamespace(madvise=refuse))
        shared_pixels.trim()
        shared_pixels.trim()
    assert [line["event"] for line in logs] == ["memory of decoded images cannot be returned to the system"]
    assert held(shared_pixels) == 2 * PAGE
    shared_pixels.trim()
    assert held(shared_pixels) == 0


def test_both_files_together_hold_no_more_than_the_arrays() -> None:
    shared_pixels = SharedPixels(4 * PAGE)
    arrays = [shared_pixels.empty((PAGE,)) for _ in range(4)]
    for array in arrays:
        array[:] = 7
    del arrays[::2], array
    large = shared_pixels.empty((2 * PAGE,))  # two free pages, but not side by side
    assert shared_pixels.start_of(large) is None
    assert held(shared_pixels) == 2 * PAGE
    assert all(array.tolist() == [7] * PAGE for array in arrays)


def test_an_image_that_does_not_fit_is_shared_without_a_copy(shared_pixels: SharedPixels) -> None:
    image = Image(shared_pixels.empty((40, PAGE, 3)), b"large")
    file = shared_pixels.file_of(image.pixels)
    assert file is not None
    with as_memfd((image,), shared_pixels) as (layouts, passed_on):
        assert passed_on == file
        [found] = map_images(layouts, os.dup(file), None)
    image.pixels[...] = 7  # after it was passed on: both see the same memory
    assert np.array_equal(found.pixels, np.full((40, PAGE, 3), 7))


def test_a_file_is_closed_with_its_array(shared_pixels: SharedPixels) -> None:
    pixels = shared_pixels.empty((40, PAGE, 3))
    file = shared_pixels.file_of(pixels)
    view = pixels[1:]
    del pixels
    assert file is not None
    os.fstat(file)
    del view
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file)
    assert shared_pixels.file_of(np.zeros((40, PAGE, 3), dtype=np.uint8)) is None


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors as Linux lists them")
def test_an_array_in_its_own_file_takes_few_descriptors(shared_pixels: SharedPixels) -> None:
    of_a_map = 0 if sys.version_info >= (3, 13) else 1  # an older `mmap` keeps a duplicate
    gc.collect()  # of other tests
    before = descriptors()
    image = Image(shared_pixels.empty((40, PAGE, 3)), b"large")
    assert descriptors() - before == 1 + of_a_map
    with as_memfd((image,), shared_pixels) as (layouts, file):
        assert file is not None
        arrived = map_images(layouts, os.dup(file), None)
    assert descriptors() - before == 1 + 2 * of_a_map, "the receiver needs none"
    del image, arrived
    assert descriptors() == before


def descriptors() -> int:
    """Count this process's open descriptors of files for pixels; other threads may open and close other files."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            count += "memfd:pixels" in os.readlink(descriptor)  # noqa: PTH115
    return count


def test_pixels_in_other_places_are_not_in_the_shared_file(shared_pixels: SharedPixels) -> None:
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
