"""An engine whose outputs a test scripts, behind the engine's port."""

import asyncio
from collections.abc import Callable

from stoop_worker.engine.request import (
    Deliver,
    Finished,
    FinishReason,
    Output,
    Request,
    Usage,
)
from stoop_worker.errors import EngineFault

__all__ = ["ScriptedEngine", "Tally"]


class Tally:
    """Counts, and lets a test wait for a count."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Condition()

    def add(self) -> None:
        self.count += 1
        task = asyncio.get_running_loop().create_task(self._notify())
        task.add_done_callback(lambda done: done.result())

    async def wait_for(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.count >= count)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


class ScriptedEngine:
    """Answers each request by `answer(request)`, or keeps it until the test delivers an answer."""

    def __init__(self, answer: Callable[[Request], list[Output]] | None = None, *, alive: bool = True) -> None:
        self.answer = answer
        self.alive = alive
        self.progress = 0
        self.deliver: Deliver = lambda outputs: None
        self.requests: list[Request] = []
        self.aborted: list[str] = []
        self.submitted = Tally()

    def submit(self, request: Request) -> None:
        if not self.alive:
            raise EngineFault("the engine has ended")
        self.progress += 1
        self.requests.append(request)
        self.submitted.add()
        if self.answer is not None:
            self.deliver(self.answer(request))

    def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)

    @staticmethod
    def finished(request_id: str, text: str = "") -> Finished:
        usage = Usage(735, 1, 0, prefill_time_ms=1.0, decode_time_ms=1.0, ttft_ms=1.0)
        return Finished(request_id, FinishReason.STOP, usage, text=text)
