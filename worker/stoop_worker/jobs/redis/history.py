"""The earlier attempts of a job that ended with the death of their worker or engine, from the job's hash."""

import contextlib
import re
from typing import Any, NamedTuple

from stoop_schemas import names
from stoop_worker.errors import QueueFault, QueueUnavailable
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.redis.client import RedisClient

__all__ = ["AttemptHistory", "LostAttempt"]

_CALL_SECONDS = 10.0
_NOTE = re.compile(rb"([0-9]{1,15}) (\S{0,256})")


class LostAttempt(NamedTuple):
    """An attempt that no worker settled. Times are Redis's, in Unix milliseconds."""

    attempt: int
    worker: str
    claimed_at: int
    lost_at: int


class AttemptHistory:
    """Reads from Redis on a connection of its own, which is made at the first use."""

    def __init__(self, url: str) -> None:
        self._redis = RedisClient(url, timeout=_CALL_SECONDS)

    async def lost_before(self, delivery: Delivery) -> list[LostAttempt]:
        """Return the lost attempts directly before this one, the latest first; none while Redis is away."""
        earlier = range(delivery.attempt - 1, max(0, delivery.attempt - 1 - delivery.crashes), -1)
        if not earlier:
            return []
        fields = [f"{what}:{attempt}" for attempt in earlier for what in ("claimed", "lost")]
        with contextlib.suppress(QueueUnavailable, QueueFault):
            notes = await self._redis.call("HMGET", names.job(delivery.job_id, delivery.partition), *fields)
            return _read(list(earlier), notes)
        return []

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.close()


def _read(attempts: list[int], notes: list[Any]) -> list[LostAttempt]:
    """Read the notes up to the first attempt that was settled; other programs may have written to the hash."""
    lost: list[LostAttempt] = []
    for attempt, claimed_note, lost_note in zip(attempts, notes[::2], notes[1::2], strict=True):
        claimed, gone = _NOTE.fullmatch(claimed_note or b""), _NOTE.fullmatch(lost_note or b"")
        if claimed is None or gone is None:
            break
        worker = claimed[2].decode(errors="replace")
        lost.append(LostAttempt(attempt, worker, int(claimed[1]), max(int(claimed[1]), int(gone[1]))))
    return lost
