"""The signals that end a worker: after the first it finishes its jobs, after the second it ends at once."""

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
"""Seconds from the second signal until the process is ended, whatever it is doing."""

_LATE_SECONDS = 15.0  # for the work that remains after the grace

_Given = TypeVar("_Given")


class Shutdown:
    """Counts SIGTERM and SIGINT. Create it in the main thread, within a running event loop.

    After the first signal, work in flight has `grace` seconds. A process that is still there a while after that, or
    soon after the second signal, is ended whatever it is doing.

    The first signal calls `drain` and the second `stop_now`, both in the event loop. If they are set later, calls that
    were missed are made then.
    """

    def __init__(self, *, grace: float) -> None:
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self._asked = asyncio.Event()
        self._calls: list[Callable[[], None]] = []
        self._last_resorts: list[threading.Timer] = []
        # not loop.add_signal_handler, because a stuck loop would never see the second signal
        self._before = {signum: signal.signal(signum, self._receive) for signum in (signal.SIGTERM, signal.SIGINT)}

    @property
    def asked(self) -> bool:
        """True once a signal has come."""
        return self._count > 0

    def on_signals(self, drain: Callable[[], None], stop_now: Callable[[], None]) -> None:
        """Set the calls of the first and the second signal."""
        self._calls = [drain, stop_now]
        for call in self._calls[: self._count]:
            call()

    async def unless_asked(self, work: Coroutine[Any, Any, _Given]) -> _Given | None:
        """Wait for `work`. At the first signal, cancel it and return None."""
        task, asked = asyncio.create_task(work), asyncio.create_task(self._asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for signum, before in self._before.items():
            signal.signal(signum, before)
        for last_resort in self._last_resorts:
            last_resort.cancel()

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count <= 2:
            seconds = self._grace + _LATE_SECONDS if self._count == 1 else LAST_RESORT_SECONDS
            last_resort = threading.Timer(seconds, os._exit, [1])
            last_resort.daemon = True
            last_resort.start()
            self._last_resorts.append(last_resort)
        self._loop.call_soon_threadsafe(self._notify, self._count)

    def _notify(self, count: int) -> None:
        log.info("shutdown requested", signals=count)
        self._asked.set()
        if count <= len(self._calls):
            self._calls[count - 1]()
