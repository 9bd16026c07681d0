"""Values of the port as the scripts say them: deliveries read off their rows, outcomes as words."""

from collections.abc import Sequence
from typing import Any

import msgspec

from schemas import names
from schemas.failure import Failure, FailureCode
from schemas.state import State
from worker.jobs import outcome as outcomes
from worker.jobs.broker import Delivery, Isolation

__all__ = ["in_ms", "lane_streams", "to_delivery", "way_of"]

_ISOLATIONS = {names.quarantine_lane(kind): Isolation(kind) for kind in names.QUARANTINES}


def way_of(outcome: outcomes.Outcome) -> tuple[str, State, bytes | int]:
    """Return how the script ends a delivery, the job's state then, and what else that way needs."""
    match outcome:
        case outcomes.Completed():
            return "end", State.COMPLETED, b""
        case outcomes.Failed():
            return "end", State.FAILED, b""
        case outcomes.Cancelled():
            return "end", State.CANCELLED, b""
        case outcomes.Expired():
            return "end", State.EXPIRED, b""
        case outcomes.Dead(failure):
            return "dead", State.FAILED, msgspec.json.encode(failure)
        case outcomes.Retry(delay=delay):
            return "retry", State.DELAYED, in_ms(delay)
        case outcomes.Released():
            return "release", State.QUEUED, b""
        case outcomes.Crashed():
            return "crash", State.QUEUED, b""


def to_delivery(row: Sequence[Any], partition: int, now: int) -> Delivery:
    """Build a delivery from the row that `take` returned for it."""
    lane, entry, job_id, packed, attempt, next_seq, queued_at, verdict, crashes, celery = row
    return Delivery(
        job_id=job_id.decode(),
        packed=packed,
        lane=lane.decode(),
        entry_id=entry.decode(),
        partition=partition,
        attempt=attempt,
        next_seq=next_seq,
        queued_at=queued_at,
        claimed_at=now,
        verdict=_verdict(verdict, crashes),
        crashes=crashes,
        isolation=_ISOLATIONS.get(lane.decode(), Isolation.NONE),
        celery=celery == 1,
    )


def lane_streams(lanes: Sequence[str], partition: int) -> list[str]:
    """Name the streams that a worker of these lanes claims from, those of the quarantine last."""
    own = [names.lane(lane, partition) for lane in lanes]
    return own + [names.quarantine(kind, partition) for kind in names.QUARANTINES]


def in_ms(seconds: float) -> int:
    """Return whole milliseconds, none below 0."""
    return max(0, round(1000 * seconds))


def _verdict(word: bytes, crashes: int) -> outcomes.Cancelled | outcomes.Expired | outcomes.Dead | None:
    match word:
        case b"cancelled":
            return outcomes.Cancelled()
        case b"expired":
            return outcomes.Expired()
        case b"lost":
            message = f"its worker died under it {crashes} times, the last time with nothing else running"
            return outcomes.Dead(Failure.of(FailureCode.WORKER_LOST, message))
        case _:
            return None
