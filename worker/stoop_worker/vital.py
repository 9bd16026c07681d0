"""The parts of a worker that must not end: the end of one is the worker's."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping

import structlog

from stoop_worker.errors import PartEnded, WorkerError

__all__ = ["VitalParts", "cancel_until_ended"]

log = structlog.get_logger(__name__)


class VitalParts:
    """Runs each part as a task, and calls `stop_now` as soon as one of them ends, whatever it ended with."""

    def __init__(self, parts: Mapping[str, Coroutine[object, object, None]], stop_now: Callable[[], None]) -> None:
        self._stop_now = stop_now
        self._tasks = {asyncio.create_task(running, name=name) for name, running in parts.items()}
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def check(self) -> None:
        """Raise the error that ended a part: a `WorkerError` unchanged, `PartEnded` for anything else."""
        for task in self._tasks:
            if not task.done() or task.cancelled():
                continue
            error = task.exception()
            if isinstance(error, WorkerError):
                raise error
            raise PartEnded(f"its {task.get_name()} has ended: see the log") from error

    async def end(self) -> None:
        """Cancel the parts until they end."""
        await cancel_until_ended(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._stop_now()  # before the log is written, because that may fail
        error = task.exception()
        known = isinstance(error, WorkerError)
        reason = str(error) if known else type(error).__name__
        log.error("the worker cannot go on", part=task.get_name(), error=reason, exc_info=None if known else error)


async def cancel_until_ended(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks until they end: Python 3.11 loses a cancellation that meets the end of a `wait_for`."""
    left = tasks
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=0.5)
