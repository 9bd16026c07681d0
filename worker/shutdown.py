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

_Given = TypeVar("_Given")


class Shutdown:
    """Counts SIGTERM and SIGINT; made in the main thread, within a running event loop.

    `drain` is called at the first one, `hurry` at the second, both in the event loop. They may be set later: what has
    been missed is called then.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._asked = asyncio.Event()
        self._calls: list[Callable[[], None]] = []
        # not the loop's own way: a loop that is stuck would never see the second signal
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._heard)

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

    def _heard(self, signum: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 2:
            last_resort = threading.Timer(LAST_RESORT_SECONDS, os._exit, [1])
            last_resort.daemon = True
            last_resort.start()
        self._loop.call_soon_threadsafe(self._tell, self._count)

    def _tell(self, count: int) -> None:
        log.info("asked to end", times=count)
        self._asked.set()
        if count <= len(self._calls):
            self._calls[count - 1]()
