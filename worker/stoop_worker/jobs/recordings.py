"""Turns a job's audio address into a recording, within the budgets that images have too."""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from stoop_worker import errors
from stoop_worker.audio import (
    WHOLE,
    AudioLimits,
    Check,
    Cutting,
    MelGeometry,
    Recording,
    packed_seconds,
    parts,
    recording_bytes,
)
from stoop_worker.errors import AudioError, AudioTooLarge, ImageError, WorkerError
from stoop_worker.images import Allocate
from stoop_worker.jobs.budget import Budget, Loan
from stoop_worker.jobs.fetch.address import is_inline
from stoop_worker.jobs.part_stream import Found, PartStream, part_stream
from stoop_worker.jobs.prepare import Budgets, FetchPort, WantedImage, on_thread

__all__ = ["PreparedRecording", "Recordings"]

_Value = TypeVar("_Value")

_SLACK: Final = (1.05, 30.0)
"""The factor for a length by packets, and the seconds added to it, before it is believed."""

_GROWTH: Final = 4
"""The factor for a length that turned out to be too little."""

_AS_AUDIO: Final[dict[type[ImageError], type[AudioError]]] = {
    errors.ImageNotFound: errors.AudioNotFound,
    errors.ImageForbidden: errors.AudioForbidden,
    errors.ImageTooLarge: errors.AudioTooLarge,
    errors.ImageUndecodable: errors.AudioUndecodable,
    errors.ImageTimeout: errors.AudioTimeout,
    errors.ImageAddressInvalid: errors.AudioAddressInvalid,
}


class _Interrupted(Exception):
    """No job waits for the work any more."""


@dataclass(frozen=True, slots=True)
class PreparedRecording:
    """The parts of a recording for the engine, and the milliseconds until its bytes and then its first part came."""

    parts: PartStream
    fetch_ms: float
    audio_ms: float


@dataclass(frozen=True, slots=True)
class Recordings:
    """Fetches recordings and decodes them on a pool of threads, under the worker's limits.

    Windows are cut into the memory that `allocate` returns, which the engine's process may share. `windows` bounds the
    number of windows that exist at the same time, those of all recordings together: each takes memory and descriptors.
    """

    fetcher: FetchPort
    pool: Executor
    limits: AudioLimits
    geometry: MelGeometry
    budgets: Budgets
    allocate: Allocate | None = None
    windows: Budget = field(default_factory=lambda: Budget(8))

    @contextlib.asynccontextmanager
    async def prepared(self, wanted: WantedImage, cutting: Cutting = WHOLE) -> AsyncIterator[PreparedRecording]:
        """Yield the recording once its first part is ready; raises an `AudioError` or `StorageUnavailable`."""
        start = time.perf_counter()
        with contextlib.ExitStack() as lent:
            room = lent.enter_context(await self._room(wanted))
            encoded = await self._fetch(wanted)
            room.shrink(len(encoded))
            fetched = time.perf_counter()

            async def decode(found: Found) -> None:
                nonlocal encoded
                lent.enter_context(await self._decode(encoded, cutting, wanted.priority, found))
                encoded = b""
                room.close()

            async with part_stream(decode) as stream:
                ready = time.perf_counter()
                yield PreparedRecording(stream, 1000 * (fetched - start), 1000 * (ready - fetched))

    async def _room(self, wanted: WantedImage) -> Loan:
        largest = 0 if is_inline(wanted.address) else self.budgets.largest
        return await self.budgets.encoded.borrow(largest, wanted.priority)

    async def _fetch(self, wanted: WantedImage) -> bytes:
        try:
            return await self.fetcher.fetch(wanted.address, wanted.tenant, wanted.priority)
        except ImageError as error:
            raise _as_audio(error) from error

    async def _decode(self, encoded: bytes, cutting: Cutting, priority: int, found: Found) -> Loan:
        """Decode within the memory for the length that the packets claim; with more only if that is too little."""
        new = _NewParts(found)
        with await self.budgets.threads.borrow(1, priority):
            packed = await self._on_thread(lambda check: packed_seconds(encoded, self.limits, check))
            believed = _SLACK[0] * packed + _SLACK[1]
            while believed < self.limits.max_seconds:
                with contextlib.suppress(AudioTooLarge):
                    return await self._decode_within(encoded, cutting, believed, priority, new)
                believed *= _GROWTH
            return await self._decode_within(encoded, cutting, self.limits.max_seconds, priority, new)

    async def _decode_within(
        self, encoded: bytes, cutting: Cutting, seconds: float, priority: int, new: "_NewParts"
    ) -> Loan:
        limits = replace(self.limits, max_seconds=seconds)

        def decode(check: Check) -> int:
            made = parts(encoded, limits, self.geometry, cutting, allocate=self.allocate, check=check)
            return sum(new.take(number, part) for number, part in enumerate(made))

        loan = await self.budgets.pixels.borrow(recording_bytes(seconds, self.geometry), priority)
        try:
            loan.shrink(await self._on_thread(decode))
        except BaseException:
            loan.close()
            raise
        return loan

    async def _on_thread(self, work: Callable[[Check], _Value]) -> _Value:
        """Do the work on a thread; if the caller is cancelled, the work ends at its next check."""
        interrupted = threading.Event()

        def check() -> None:
            if interrupted.is_set():
                raise _Interrupted

        return await on_thread(self.pool, lambda: work(check), interrupted.set)


@dataclass(slots=True)
class _NewParts:
    """Passes each part on once, although a file may be decoded again from its beginning."""

    found: Found
    count: int = 0

    def take(self, number: int, part: Recording) -> int:
        """Pass the part of this number on if it is new; return the bytes of its features."""
        if number == self.count:
            self.count += 1
            self.found(part)
        return part.frames.nbytes


def _as_audio(error: ImageError) -> WorkerError:
    kind = _AS_AUDIO.get(type(error))
    return error if kind is None else kind(str(error))
