"""Recordings from their addresses, within the budgets, with a code for each way to fail."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from stoop_worker import errors
from stoop_worker.audio import AudioLimits, MelGeometry, recording_bytes
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.prepare import Budgets, WantedImage
from stoop_worker.jobs.recordings import Recordings
from tests.audio.sounds import encoded, tone

WANTED = WantedImage("s3://talks/a.wav", None, 0)
LIMITS = AudioLimits(max_bytes=4 << 20, max_seconds=120)


class Shelf:
    """A store with one file, or with a reason to have none."""

    def __init__(self, found: bytes | Exception) -> None:
        self.found = found

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class Studio:
    """Recordings, and the budgets that they borrow from."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.shelf = Shelf(encoded(tone(2.0)))
        self.budgets = Budgets(Budget(8 << 20), Budget(2), Budget(1 << 30), largest=4 << 20)
        self.recordings = Recordings(self.shelf, pool, LIMITS, MelGeometry(80), self.budgets)

    @property
    def lent(self) -> tuple[int, int, int]:
        return (self.budgets.encoded.lent, self.budgets.threads.lent, self.budgets.pixels.lent)


@pytest.fixture
async def studio() -> AsyncIterator[Studio]:
    with ThreadPoolExecutor(1) as pool:
        yield Studio(pool)


async def test_a_recording_is_lent_the_memory_of_its_frames_alone_while_it_is_used(studio: Studio) -> None:
    async with studio.recordings.prepared(WANTED) as ready:
        assert (ready.recording.duration, ready.recording.count) == (2.0, 200)
        assert studio.lent == (0, 0, ready.recording.frames.nbytes)
        assert ready.fetch_ms >= 0 < ready.audio_ms
    assert studio.lent == (0, 0, 0)
    claimed = recording_bytes(2 * 1.05 + 30, MelGeometry(80))
    assert studio.budgets.pixels.peak == pytest.approx(claimed, rel=0.01), "what a header of two seconds is worth"


async def test_a_header_that_claims_too_little_costs_a_second_decoding(studio: Studio) -> None:
    long = bytearray(encoded(np.zeros(100 * 16_000, dtype=np.int16), "flac", "flac"))
    long[21:26] = bytes([long[21] & 0xF0, 0, 0, 0x3E, 0x80])  # FLAC's number of samples: one second
    studio.shelf.found = bytes(long)
    async with studio.recordings.prepared(WANTED) as ready:
        assert ready.recording.duration == 100.0
    assert studio.budgets.pixels.peak == recording_bytes(LIMITS.max_seconds, MelGeometry(80))
    assert studio.lent == (0, 0, 0)


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (errors.ImageNotFound("x"), errors.AudioNotFound),
        (errors.ImageForbidden("x"), errors.AudioForbidden),
        (errors.ImageTooLarge("x"), errors.AudioTooLarge),
        (errors.ImageTimeout("x"), errors.AudioTimeout),
        (errors.ImageAddressInvalid("x"), errors.AudioAddressInvalid),
        (errors.StorageUnavailable("x"), errors.StorageUnavailable),
        (b"This is a text.\n" * 100, errors.AudioUndecodable),
        (encoded(np.zeros(121 * 16_000, dtype=np.int16), "flac", "flac"), errors.AudioTooLarge),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
async def test_each_failure_has_its_own_error_and_returns_what_was_lent(
    studio: Studio, found: bytes | Exception, error: type[Exception]
) -> None:
    studio.shelf.found = found
    with pytest.raises(error):
        async with studio.recordings.prepared(WANTED):
            pass
    assert studio.lent == (0, 0, 0)


async def test_windows_lie_in_the_memory_that_the_engines_process_shares() -> None:
    shared = SharedPixels(count=1, size=80 * 3000 * 4)
    try:
        with ThreadPoolExecutor(1) as pool:
            studio = Studio(pool)
            recordings = Recordings(studio.shelf, pool, LIMITS, MelGeometry(80), studio.budgets, shared.empty)
            async with recordings.prepared(WANTED) as ready:
                window = ready.recording.window(100)
        assert shared.start_of(window.frames.view(np.uint8)) == 0
        assert window.content == 100 and not window.frames[:, 100:].any()
        assert np.array_equal(window.frames[:, :100], ready.recording.frames[:, 100:])
    finally:
        shared.close()
