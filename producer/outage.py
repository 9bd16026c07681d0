"""A Redis that was there and has gone away."""

import time

from producer.errors import QueueUnavailable

__all__ = ["OUTAGE_SECONDS", "Outage"]

OUTAGE_SECONDS = 60.0
"""How long a Redis that goes away is waited for: a restart, or a replica that takes over."""


class Outage:
    """How long it has lasted, as one who asks again and again sees it; borne for `patience` seconds."""

    def __init__(self, patience: float = OUTAGE_SECONDS) -> None:
        self._patience = patience
        self._since: float | None = None

    def bear(self, error: QueueUnavailable) -> None:
        """Raise the error if this has lasted too long."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._patience:
            raise error

    def end(self) -> None:
        """Begin anew: Redis has answered."""
        self._since = None
