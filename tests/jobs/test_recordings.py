"""Recordings from their addresses, within the budgets, with a code for each way to fail."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from stoop_worker import errors
from stoop_worker.audio import AudioLimits, Check, Cutting, MelGeometry, Recording, Span, parts, recording_bytes
from stoop_worker.engine_process.pixels import SharedPixels
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.prepare import Budgets, WantedImage
from stoop_worker.jobs.recordings import PreparedRecording, Recordings
from tests.audio.sounds import encoded, tone

WANTED = WantedImage("s3://talks/a.wav", None, 0)
LIMITS = AudioLimits(max_bytes=4 << 20, max_seconds=120)


async def all_of(ready: PreparedRecording) -> list[Recording]:
    return [part async for part in ready.parts]


class OneFileStore:
    """A store with one file, or an error in place of it."""

    def __init__(self, found: bytes | Exception) -> None:
        self.found = found

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


class RecordingsUnderTest:
    """Recordings, and the budgets that they borrow from."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.store = OneFileStore(encoded(tone(2.0)))
        self.budgets = Budgets(Budget(8 << 20), Budget(2), Budget(1 << 30), largest=4 << 20)
        self.recordings = Recordings(self.store, pool, LIMITS, MelGeometry(80), self.budgets)

    @property
    def lent(self) -> tuple[int, int, int]:
        return (self.budgets.encoded.lent, self.budgets.threads.lent, self.budgets.pixels.lent)


@pytest.fixture
async def under_test() -> AsyncIterator[RecordingsUnderTest]:
    with ThreadPoolExecutor(1) as pool:
        yield RecordingsUnderTest(pool)


async def test_a_recording_is_lent_the_memory_of_its_frames_alone_while_it_is_used(
    under_test: RecordingsUnderTest,
) -> None:
    async with under_test.recordings.prepared(WANTED) as ready:
        (recording,) = await all_of(ready)
        assert (recording.duration, recording.count) == (2.0, 200)
        assert under_test.lent == (0, 0, recording.frames.nbytes)
        assert ready.fetch_ms >= 0 < ready.audio_ms
    assert under_test.lent == (0, 0, 0)
    packed = recording_bytes(2 * 1.05 + 30, MelGeometry(80))
    assert under_test.budgets.pixels.peak == pytest.approx(packed, rel=0.01), "what two seconds of packets are worth"


@pytest.mark.parametrize("header", [bytes([0, 0, 0x3E, 0x80]), bytes(4), bytes([0xFF, 0xFF, 0xFF, 0xFF])])
async def test_a_wrong_or_missing_length_in_the_header_costs_no_memory(
    under_test: RecordingsUnderTest, header: bytes
) -> None:
    long = bytearray(encoded(np.zeros(50 * 16_000, dtype=np.int16), "flac", "flac"))
    long[22:26] = header  # FLAC's number of samples: one second, unknown, or three days
    under_test.store.found = bytes(long)
    async with under_test.recordings.prepared(WANTED) as ready:
        assert [each.duration for each in await all_of(ready)] == [50.0]
    packed = recording_bytes(50 * 1.05 + 30, MelGeometry(80))
    assert under_test.budgets.pixels.peak == pytest.approx(packed, rel=0.01)
    assert under_test.lent == (0, 0, 0)


async def test_packets_longer_than_their_declared_length_are_decoded_again(
    under_test: RecordingsUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoop_worker.jobs.recordings.packed_seconds", lambda *given: 1.0)
    under_test.store.found = encoded(np.zeros(100 * 16_000, dtype=np.int16), "flac", "flac")
    async with under_test.recordings.prepared(WANTED) as ready:
        assert [each.duration for each in await all_of(ready)] == [100.0]
    assert under_test.budgets.pixels.peak == recording_bytes(LIMITS.max_seconds, MelGeometry(80))
    assert under_test.lent == (0, 0, 0)


async def test_windows_that_were_passed_on_are_not_passed_on_again_by_another_decoding(
    under_test: RecordingsUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoop_worker.jobs.recordings.packed_seconds", lambda *given: 10.0)
    under_test.store.found = encoded(tone(100.0), "flac", "flac")
    async with under_test.recordings.prepared(WANTED, Cutting(in_windows=True)) as ready:
        found = await all_of(ready)
        assert under_test.lent == (0, 0, sum(part.frames.nbytes for part in found))
    assert [part.start for part in found] == [0, *(part.start + part.count for part in found[:-1])]
    assert found[-1].end == 100.0
    assert under_test.lent == (0, 0, 0)


async def test_a_window_comes_while_later_ones_are_decoded_and_a_caller_may_leave_then(
    under_test: RecordingsUnderTest,
) -> None:
    under_test.store.found = encoded(tone(100.0), "flac", "flac")
    decoding = threading.Event()
    found: list[Recording] = []

    def stalled(*given: object, **options: object) -> Iterator[Recording]:
        for part in parts(*given, **options):  # type: ignore[arg-type]
            yield part
            decoding.set()
            while True:
                time.sleep(0.001)
                options["check"]()  # type: ignore[operator]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stoop_worker.jobs.recordings.parts", stalled)
        async with under_test.recordings.prepared(WANTED, Cutting(in_windows=True)) as ready:
            async for part in ready.parts:
                found.append(part)
                await asyncio.to_thread(decoding.wait)
                assert all(under_test.lent), "the file is still being decoded"
                break
    assert len(found) == 1 and under_test.lent == (0, 0, 0)


async def test_a_cancelled_caller_waits_for_no_more_than_a_moment_of_decoding(under_test: RecordingsUnderTest) -> None:
    began, pieces = threading.Event(), 0

    def allocate(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        raise AssertionError("no window is cut")

    class Counted(Cutting):
        def cut(self, samples: object, frames: object, check: Check = lambda: None) -> tuple[Span, ...]:
            nonlocal pieces
            began.set()
            while True:  # a detector that never ends by itself
                pieces += 1
                check()

    under_test.recordings = replace(under_test.recordings, allocate=allocate)
    context = under_test.recordings.prepared(WANTED, Counted())
    running = asyncio.create_task(context.__aenter__())
    await asyncio.to_thread(began.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert pieces and under_test.lent == (0, 0, 0)


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
async def test_each_failure_has_its_own_error_and_returns_its_loans(
    under_test: RecordingsUnderTest, found: bytes | Exception, error: type[Exception]
) -> None:
    under_test.store.found = found
    with pytest.raises(error):
        async with under_test.recordings.prepared(WANTED):
            pass
    assert under_test.lent == (0, 0, 0)


async def test_windows_are_in_the_memory_shared_with_the_engines_process() -> None:
    shared = SharedPixels(80 * 3000 * 4)
    try:
        with ThreadPoolExecutor(1) as pool:
            under_test = RecordingsUnderTest(pool)
            recordings = Recordings(under_test.store, pool, LIMITS, MelGeometry(80), under_test.budgets, shared.empty)
            async with recordings.prepared(WANTED) as ready:
                (recording,) = await all_of(ready)
                window = recording.window(100, 200)
        assert shared.start_of(window.frames.view(np.uint8)) == 0
        assert window.content == 100 and not window.frames[:, 100:].any()
        assert np.array_equal(window.frames[:, :100], recording.frames[:, 100:])
    finally:
        shared.close()
