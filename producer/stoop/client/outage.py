"""Tolerates a Redis outage for a limited time."""

import time

from stoop.errors import QueueUnavailable

__all__ = ["OUTAGE_SECONDS", "Outage"]

OUTAGE_SECONDS = 60.0
"""Seconds to wait for an unreachable Redis: enough for a restart or a failover to a replica."""


class Outage:
    """Times an outage across repeated attempts, and tolerates it for `patience` seconds."""

    def __init__(self, patience: float = OUTAGE_SECONDS) -> None:
        self._patience = patience
        self._since: float | None = None

    def check(self, error: QueueUnavailable) -> None:
        """Raise the error if the outage has lasted too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._patience:
            raise error

    def end(self) -> None:
        """Reset the timer, because Redis has answered."""
        self._since = None
