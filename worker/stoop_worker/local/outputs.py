"""Brings the outputs of requests from the engine's thread to their callers in an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from stoop_worker.engine.request import Aborted, Finished, Output, Refused, Request
from stoop_worker.engine.thread import EngineThread
from stoop_worker.errors import EngineFault

__all__ = ["Outputs"]


class Outputs:
    """One queue for each request in flight. None in a queue means that the engine has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[str, asyncio.Queue[Output | None]] = {}

    def deliver(self, outputs: Sequence[Output]) -> None:
        """Take the outputs of a step; called in the engine's thread."""
        self._soon(lambda: self._hand_out(outputs))

    def end(self) -> None:
        """End every caller's outputs after the engine has ended; any thread may call it."""
        self._soon(self._end)

    async def follow(self, engine: EngineThread, request: Request) -> AsyncGenerator[Output, None]:
        """Submit a request and yield its outputs; closing the generator ends the request.

        Raises `EngineFault` if the engine ends first.
        """
        queue: asyncio.Queue[Output | None] = asyncio.Queue()
        self._queues[request.id] = queue
        ended = False
        try:
            await asyncio.to_thread(engine.submit, request)
            while not ended:
                output = await queue.get()
                if output is None:
                    raise EngineFault("the engine has ended: make another")
                ended = isinstance(output, Finished | Refused | Aborted)
                yield output
        finally:
            del self._queues[request.id]
            if not ended:
                engine.abort(request.id)

    def _soon(self, call: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def _hand_out(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.id in self._queues:
                self._queues[output.id].put_nowait(output)

    def _end(self) -> None:
        for queue in self._queues.values():
            queue.put_nowait(None)
