"""The signals that end a worker: the first lets it finish, the second does not."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

import structlog

__all__ = ["LAST_RESORT_SECONDS", "Shutdown"]

log = structlog.get_logger(__name__)

LAST_RESORT_SECONDS: Final = 4.5
"""How long after the second signal the process ends whatever it is at."""

_LATE_SECONDS = 15.0  # for what has to be done after the grace

_Given = TypeVar("_Given")


class Shutdown:
    """Counts SIGTERM and SIGINT; made in the main thread, within a running event loop.

    Work in flight has `grace` seconds after the first. A process that has not ended a while after that, or soon after
    the second, is ended whatever it is at.

    `drain` is called at the first one, `hurry` at the second, both in the event loop. They may be set later: what has
    been missed is called then.
    """

    def __init__(self, *, grace: float) -> None:
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._asked = asyncio.Event()
        self._calls: list[Callable[[], None]] = []
        self._last_resorts: list[threading.Timer] = []
        # not the loop's own way: a loop that is stuck would never see the second signal
        self._before = {signum: signal.signal(signum, self._heard) for signum in (signal.SIGTERM, signal.SIGINT)}

    @property
    def asked(self) -> bool:
        """Whether a signal has come."""
        return self._count > 0

    def on_signals(self, drain: Callable[[], None], hurry: Callable[[], None]) -> None:
        """Set what the first and the second signal do."""
        self._calls = [drain, hurry]
        for call in self._calls[: self._count]:
            call()

    async def unless_asked(self, work: Coroutine[Any, Any, _Given]) -> _Given | None:
        """Wait for something, or until the first signal; then it is cancelled, and there is None."""
        task, asked = asyncio.create_task(work), asyncio.create_task(self._asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None

    def close(self) -> None:
        """Leave the signals to whoever had them before: the end has been reached."""
        for signum, before in self._before.items():
            signal.signal(signum, before)
        for last_resort in self._last_resorts:
            last_resort.cancel()

    def _heard(self, signum: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count <= 2:
            seconds = self._grace + _LATE_SECONDS if self._count == 1 else LAST_RESORT_SECONDS
            last_resort = threading.Timer(seconds, os._exit, [1])
            last_resort.daemon = True
            last_resort.start()
            self._last_resorts.append(last_resort)
        self._loop.call_soon_threadsafe(self._tell, self._count)

    def _tell(self, count: int) -> None:
        log.info("asked to end", times=count)
        self._asked.set()
        if count <= len(self._calls):
            self._calls[count - 1]()
