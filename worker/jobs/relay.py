"""The engine's outputs, brought from its thread to the coroutine that waits for them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from worker.engine.request import Aborted, EnginePort, Finished, Output, Partial, Refused, Request, Terminal
from worker.errors import EngineFault

__all__ = ["Relay"]


class Relay:
    """Runs requests on an engine and gives each coroutine the outputs of its own request.

    `deliver` is for the engine's thread; everything else belongs to the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._engine: EnginePort | None = None
        self._waiting: dict[str, asyncio.Queue[Output | None]] = {}

    def attach(self, engine: EnginePort) -> None:
        """Take the engine that delivers here; the two need each other, so this comes second."""
        self._engine = engine

    def deliver(self, outputs: Sequence[Output]) -> None:
        """Hand over the outputs of one step (engine thread); what comes after the loop has closed is dropped."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._dispatch, outputs)

    async def run(self, request: Request, accept: Callable[[Partial], None]) -> Terminal:
        """Run a request: `accept` every output as it comes, return the terminal one.

        Raises `EngineFault` if the engine ends first. When cancelled, the engine is told to abort.
        """
        assert self._engine is not None, "attach an engine first"
        queue = self._waiting[request.id] = asyncio.Queue()
        try:
            self._engine.submit(request)
            async for output in _until_terminal(queue):
                if isinstance(output, Finished | Refused | Aborted):
                    return output
                accept(output)
        except asyncio.CancelledError:
            self._engine.abort(request.id)
            raise
        finally:
            del self._waiting[request.id]
        raise EngineFault("the engine has ended with the job in it")

    def fail(self) -> None:
        """End every wait with `EngineFault`: the engine is gone."""
        for queue in self._waiting.values():
            queue.put_nowait(None)

    def _dispatch(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            queue = self._waiting.get(output.id)
            if queue is not None:  # an aborted request may still speak once
                queue.put_nowait(output)


async def _until_terminal(queue: "asyncio.Queue[Output | None]") -> AsyncIterator[Output]:
    while (output := await queue.get()) is not None:
        yield output
