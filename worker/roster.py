"""What a worker tells of itself to the registry of workers."""

import os
import socket
from dataclasses import dataclass, field
from importlib.metadata import version

import msgspec

from worker.jobs.publisher import Identity

__all__ = ["Entry"]


@dataclass(slots=True)
class Entry:
    """One worker's entry: `started_at` is the time of the first telling, Redis's, in Unix milliseconds."""

    identity: Identity
    lanes: tuple[str, ...]
    permits: int
    started_at: int | None = None
    version: str = field(default_factory=lambda: version("stoop"))

    def tell(self, now: int, in_flight: int) -> bytes:
        """Return the entry as JSON."""
        if self.started_at is None:
            self.started_at = now
        return msgspec.json.encode(
            {
                "started_at": self.started_at,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "model": self.identity.model,
                "lanes": self.lanes,
                "permits": self.permits,
                "in_flight": in_flight,
                "version": self.version,
            }
        )
