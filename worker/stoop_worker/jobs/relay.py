"""Delivers the engine's outputs to the coroutines that wait for them."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from stoop_worker.engine.request import Aborted, EnginePort, Finished, Output, Partial, Refused, Request, Terminal
from stoop_worker.errors import EngineCrashed

__all__ = ["Relay"]


class Relay:
    """Runs requests on an engine and gives each coroutine the outputs of its own request.

    `deliver` and `on_engine_lost` may be called from any thread; everything else belongs to the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._engine: EnginePort | None = None
        self._waiting: dict[str, asyncio.Queue[Output | None]] = {}
        self._inside: dict[str, asyncio.Event] = {}  # requests in the engine, each with the event of its release

    def attach(self, engine: EnginePort) -> None:
        """Set the engine that delivers here. Each needs the other, so this is called after both exist."""
        self._engine = engine

    def deliver(self, outputs: Sequence[Output]) -> None:
        """Hand over the outputs of one step. Once the loop has closed, outputs are dropped."""
        self._call_soon(lambda: self._dispatch(outputs))

    def on_engine_lost(self, request_ids: Sequence[str]) -> None:
        """Report that the engine ended with these requests inside, after all outputs that it delivered."""
        self._call_soon(lambda: self._fail(request_ids))

    async def run(self, request: Request, accept: Callable[[Partial], None]) -> Terminal:
        """Run a request: pass each partial output to `accept` as it comes, and return the terminal one.

        Raises `EngineFault` if the engine takes no more requests, and `EngineCrashed` if it ends with this one inside.
        If the caller is cancelled, the engine aborts the request; a request with the same id waits until that has
        happened.
        """
        assert self._engine is not None, "attach an engine first"
        request_id = request.id
        while request_id in self._inside:
            await self._inside[request_id].wait()
        self._engine.submit(request)
        del request  # the engine owns its pixels now
        inside = self._inside[request_id] = asyncio.Event()
        queue = self._waiting[request_id] = asyncio.Queue()
        try:
            while (output := await queue.get()) is not None:
                if isinstance(output, Finished | Refused | Aborted):
                    return output
                accept(output)
        except asyncio.CancelledError:
            if self._inside.get(request_id) is inside:
                self._engine.abort(request_id)
            raise
        finally:
            # another request may have taken the id by now
            if self._waiting.get(request_id) is queue:
                del self._waiting[request_id]
        raise EngineCrashed("the engine ended while it ran the job")

    def _call_soon(self, callback: Callable[[], None]) -> None:
        if self._loop.is_closed():
            return
        if _running_loop() is self._loop:
            # the loop is already running, so skip call_soon_threadsafe and its two system calls
            self._loop.call_soon(callback)
        else:
            self._loop.call_soon_threadsafe(callback)

    def _dispatch(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, Finished | Refused | Aborted):
                self._release(output.id)
            queue = self._waiting.get(output.id)
            if queue is not None:  # an aborted request may still have one output
                queue.put_nowait(output)

    def _fail(self, request_ids: Sequence[str]) -> None:
        for request_id in request_ids:
            self._release(request_id)
            if queue := self._waiting.get(request_id):
                queue.put_nowait(None)

    def _release(self, request_id: str) -> None:
        if left := self._inside.pop(request_id, None):
            left.set()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None
