"""Converts the replies of scripts to deliveries, and outcomes to arguments of scripts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.state import State
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.broker import Delivery, Isolation

__all__ = ["Taken", "command_of", "in_ms", "lane_ttls", "priority_of", "to_delivery"]

_FIELDS: Final = 11  # of a delivery


class Taken(NamedTuple):
    """The reply of `take.lua`, which describes the fields. Times are in milliseconds; each delivery has a row."""

    now: int
    due: int
    holding: bool
    ends: Sequence[bytes]
    spoilt: Sequence[bytes]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, reply: Sequence[Any], streams: int) -> "Taken":
        """Read the reply to a call for this number of streams."""
        now, due, holding, spoilt = reply[:4]
        keys = 4 + streams + 1
        first = keys + spoilt
        rows = [reply[at : at + _FIELDS] for at in range(first, len(reply), _FIELDS)]
        return cls(now, due, holding == 1, reply[4:keys], reply[keys:first], rows)


def command_of(outcome: outcomes.Outcome) -> tuple[str, State, bytes | int]:
    """Return the script's command for an outcome, the job's state after it, and the command's argument."""
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


def to_delivery(row: Sequence[Any], partition: int, now: int, lanes: Sequence[str]) -> Delivery:
    """Build a delivery from the row that `take` returned for it; `lanes` are the worker's, the first one first."""
    lane, entry, job_id, packed, attempt, next_seq, queued_at, verdict, crashes, celery, logged = row
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
        isolation=_isolation(lane.decode()),
        celery=celery == 1,
        priority=priority_of(lane.decode(), lanes),
        logged=logged == 1,
    )


def priority_of(lane: str, lanes: Sequence[str]) -> int:
    """Return the place of a lane, or of a tenant's part of it, among the worker's; the quarantine comes last."""
    own = lane.partition("/")[0]
    return lanes.index(own) if own in lanes else len(lanes)


def in_ms(seconds: float) -> int:
    """Return whole milliseconds, none below 0."""
    return max(0, round(1000 * seconds))


def lane_ttls(seconds: Mapping[str, float]) -> bytes:
    """Return the times to live of lanes, in milliseconds, as JSON; nothing if there are none."""
    return msgspec.json.encode({lane: in_ms(value) for lane, value in seconds.items()}) if seconds else b""


def _isolation(lane: str) -> Isolation:
    quarantine = names.quarantine_of(lane)
    return Isolation(quarantine[1]) if quarantine else Isolation.NONE


def _verdict(packed: bytes, crashes: int) -> outcomes.Cancelled | outcomes.Expired | outcomes.Dead | None:
    match packed.split():
        case [b"cancelled"]:
            return outcomes.Cancelled()
        case [b"expired"]:
            return outcomes.Expired()
        case [b"invalid", field]:
            message = f"another program wrote to the job's hash in Redis: its field {field.decode()} is invalid"
            return outcomes.Dead(Failure.of(FailureCode.MALFORMED, message))
        case [b"lost"]:
            message = (
                f"workers or engines died {crashes} times while they ran it, the last time with nothing else running"
            )
            return outcomes.Dead(Failure.of(FailureCode.WORKER_LOST, message))
        case _:
            return None
