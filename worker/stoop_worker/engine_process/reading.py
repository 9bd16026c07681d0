"""The progress of reading a model's weights: log lines, and messages to the front."""

import time
from collections.abc import Callable

import structlog

from stoop_worker.engine_process.protocol import Loading

__all__ = ["Reading"]

log = structlog.get_logger(__name__)

_NEWS_SECONDS = 1.0
_LOG_SECONDS = 5.0


class Reading:
    """Called for every tensor read; reports to the front every second, and to the log every 5 seconds."""

    def __init__(
        self, on_loading: Callable[[Loading], None], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._on_loading = on_loading
        self._clock = clock
        self._began = self._logged = clock()
        self._passed_on = float("-inf")
        self.read = 0

    def on_read(self, read: int, total: int) -> None:
        """Note that this many bytes of the weights have been read."""
        self.read, now = read, self._clock()
        if now - self._passed_on >= _NEWS_SECONDS:
            self._passed_on = now
            self._on_loading(Loading(read, total))
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            seconds = round(now - self._began, 1)
            log.info("reading weights", megabytes=read >> 20, of=total >> 20, seconds=seconds)
