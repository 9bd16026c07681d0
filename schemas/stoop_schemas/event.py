"""What is told while a job runs: one union of tagged values, numbered within the job."""

from typing import Annotated

import msgspec

from schemas.failure import Failure
from schemas.result import Result
from schemas.version import Version, current

__all__ = [
    "CancelledEvent",
    "DeltaEvent",
    "Event",
    "ExpiredEvent",
    "FailedEvent",
    "FinishedEvent",
    "ObjectEvent",
    "QueuedEvent",
    "ReasoningEvent",
    "RestartedEvent",
    "StartedEvent",
    "TerminalEvent",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Fields of every event.

    `seq` counts from 0 within the job, without gaps; `attempt` is 0 until a worker runs the job.
    """

    v: Version = msgspec.field(default_factory=current)
    id: str
    seq: Annotated[int, msgspec.Meta(ge=0)]
    attempt: Annotated[int, msgspec.Meta(ge=0)] = 0


class QueuedEvent(_Event, frozen=True, tag="queued"):
    """The job is in its lane."""


class StartedEvent(_Event, frozen=True, tag="started"):
    """A worker has claimed the job for the first time."""


class RestartedEvent(_Event, frozen=True, tag="restarted"):
    """A worker runs the job anew: what was streamed before counts no more."""


class DeltaEvent(_Event, frozen=True, kw_only=True, tag="delta"):
    """The next piece of the answer or the caption."""

    text: str


class ReasoningEvent(_Event, frozen=True, kw_only=True, tag="reasoning"):
    """The next piece of the reasoning."""

    text: str


class ObjectEvent(_Event, frozen=True, kw_only=True, tag="object"):
    """The next box (detect: x_min, y_min, x_max, y_max) or point (point: x, y)."""

    object: dict[str, float]


class FinishedEvent(_Event, frozen=True, kw_only=True, tag="finished"):
    """The job completed."""

    result: Result


class FailedEvent(_Event, frozen=True, kw_only=True, tag="failed"):
    """The job ended without an answer."""

    failure: Failure


class CancelledEvent(_Event, frozen=True, tag="cancelled"):
    """The job was cancelled."""


class ExpiredEvent(_Event, frozen=True, tag="expired"):
    """The job's deadline passed before its answer."""


TerminalEvent = FinishedEvent | FailedEvent | CancelledEvent | ExpiredEvent
"""The last event of a job is one of these, and no other event is."""

Event = QueuedEvent | StartedEvent | RestartedEvent | DeltaEvent | ReasoningEvent | ObjectEvent | TerminalEvent
