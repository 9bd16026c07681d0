"""The shared view of a Redis outage in one worker, logged at its start, once a minute and at its end."""

import contextlib
import time
from collections.abc import Callable, Iterator

import structlog

from stoop_worker.errors import QueueUnavailable

__all__ = ["RedisOutage"]

log = structlog.get_logger(__name__)

_REMIND_SECONDS = 60.0


class RedisOutage:
    """Begins when a part of the worker fails to use Redis, and ends when every part that failed has succeeded again.

    Parts call `failed` and `succeeded` in the event loop; `seconds` may be read from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failing: set[str] = set()
        self._since: float | None = None
        self._logged = 0.0

    @property
    def seconds(self) -> float:
        """The length of the current outage in seconds; 0 if there is none."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    @contextlib.contextmanager
    def noting(self, part: str) -> Iterator[None]:
        """Note this part's success, or its failure if the block raises `QueueUnavailable`, which is raised again."""
        try:
            yield
        except QueueUnavailable as error:
            self.failed(part, error)
            raise
        self.succeeded(part)

    def failed(self, part: str, error: Exception) -> None:
        """Note that a part could not use Redis; log it if this is new, or if a minute has passed."""
        now = self._clock()
        self._failing.add(part)
        if self._since is None:
            self._since = self._logged = now
            log.warning("Redis is not available: this worker waits for it", part=part, error=str(error))
        elif now - self._logged >= _REMIND_SECONDS:
            self._logged = now
            log.warning("Redis is still not available", seconds=round(now - self._since), part=part, error=str(error))

    def succeeded(self, part: str) -> None:
        """Note that a part could use Redis; log it if it was the last one that could not."""
        self._failing.discard(part)
        if self._since is not None and not self._failing:
            log.warning("Redis is available again", seconds=round(self.seconds, 1))
            self._since = None
