"""Reads and decodes a recording in this process, and returns its transcript, whole or segment by segment."""

import asyncio
import contextlib
import importlib.util
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_worker.audio import AudioLimits, MelGeometry, parts
from stoop_worker.errors import AudioAddressInvalid, AudioNotFound, AudioUndecodable, ConfigError
from stoop_worker.jobs.part_stream import Found, PartStream, part_stream
from stoop_worker.jobs.pipelines import Passage
from stoop_worker.jobs.translate import cutting_of, to_segment
from stoop_worker.local.images import inline

__all__ = ["AudioSource", "Hear", "LocalSegments", "parts_of"]

AudioSource: TypeAlias = "str | Path | bytes"
"""A path, a `data:` address, or the bytes of an audio file."""

Hear = Callable[[Callable[[Passage], None]], Awaitable[Result]]
"""Hears a recording, and calls its argument with each passage."""


@contextlib.asynccontextmanager
async def parts_of(source: AudioSource, job: Job, geometry: MelGeometry) -> AsyncIterator[PartStream]:
    """Read, decode and cut a recording in a thread; raises an `AudioError`, or `ConfigError` without PyAV.

    If the caller leaves, the thread ends at its next check.
    """
    if importlib.util.find_spec("av") is None:
        raise ConfigError("a model of speech needs PyAV to decode audio: pip install 'stoop[audio]'")
    left = threading.Event()

    def check() -> None:
        if left.is_set():
            raise InterruptedError

    def work(found: Found) -> None:
        for part in parts(_encoded(source), AudioLimits(), geometry, cutting_of(job), check=check):
            found(part)

    try:
        async with part_stream(lambda found: asyncio.to_thread(work, found)) as stream:
            yield stream
    finally:
        left.set()


def _encoded(source: AudioSource) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str) and source.startswith("data:"):
        return inline(source, AudioUndecodable)
    if "://" in str(source):
        raise AudioAddressInvalid(f"{source}: without a queue a recording is a path or bytes")
    try:
        return Path(source).expanduser().read_bytes()
    except OSError as error:
        raise AudioNotFound(f"cannot read {source}: {error.strerror}") from error


class LocalSegments:
    """The segments of one transcript as they arrive, each a dict with its `words` if asked for; iterate it once.

    `transcript` is the whole transcript once the stream has ended.
    """

    def __init__(self, hear: Hear, job: Job) -> None:
        self.transcript: dict[str, Any] | None = None
        self._job = job
        self._found: asyncio.Queue[Passage | None] = asyncio.Queue()
        self._hearing = asyncio.ensure_future(hear(self._found.put_nowait))
        self._hearing.add_done_callback(lambda _: self._found.put_nowait(None))

    def __aiter__(self) -> "LocalSegments":
        return self

    async def __anext__(self) -> dict[str, Any]:
        over = self._hearing.done() and self._found.empty()
        passage = None if over else await self._found.get()
        if passage is not None:
            return to_segment(self._job, passage)
        self.transcript = msgspec.to_builtins((await self._hearing).output)["transcript"]
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop transcribing; idempotent."""
        self._hearing.cancel()
        await asyncio.wait({self._hearing})
