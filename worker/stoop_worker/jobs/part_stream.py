"""The parts of a recording, while a thread still decodes later ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from stoop_worker.audio import Recording

__all__ = ["Found", "PartStream", "part_stream"]

Found = Callable[[Recording], None]
"""Takes the next part, in any thread."""


class PartStream:
    """The parts in their order; iterate it once. It raises the errors of decoding."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[Recording | None] = asyncio.Queue()
        self._first: Recording | None = None

    def found(self, part: Recording) -> None:
        """Add a part, from any thread."""
        self._loop.call_soon_threadsafe(self._parts.put_nowait, part)

    async def follow(self, decoding: "asyncio.Task[None]") -> None:
        """Take parts until this task ends, and wait for the first one; raises the task's error."""
        self._decoding = decoding
        decoding.add_done_callback(lambda _: self._parts.put_nowait(None))
        self._first = await self._next()

    async def __aiter__(self) -> AsyncIterator[Recording]:
        part, self._first = self._first, None
        while part is not None:
            yield part
            part = await self._next()

    async def _next(self) -> Recording | None:
        part = await self._parts.get()
        if part is None:
            self._decoding.result()
        return part


@contextlib.asynccontextmanager
async def part_stream(decode: Callable[[Found], Awaitable[None]]) -> AsyncIterator[PartStream]:
    """Decode concurrently with the caller, and yield once there is a part; leaving the `with` ends the decoding. Raises
    the errors of `decode` before the first part.
    """
    parts = PartStream()

    async def decoding() -> None:
        await decode(parts.found)

    task = asyncio.create_task(decoding())
    try:
        await parts.follow(task)
        yield parts
    finally:
        task.cancel()
        await asyncio.wait({task})
