"""The events of a running job: one union of tagged values, numbered within the job."""

from typing import Annotated

import msgspec

from stoop_schemas.failure import Failure
from stoop_schemas.result import Result
from stoop_schemas.transcript import TranscriptSegment, TranscriptWord
from stoop_schemas.version import Version, current

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
    "SegmentEvent",
    "StartedEvent",
    "TerminalEvent",
    "UnknownEvent",
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Fields of every event.

    `seq` counts from 0 within the job, without gaps; `attempt` is 0 until a worker runs the job.
    """

    v: Version = msgspec.field(default_factory=current)
    id: str
    seq: Annotated[int, msgspec.Meta(ge=0)]
    attempt: Annotated[int, msgspec.Meta(ge=0)] = 0

    @property
    def type(self) -> str:
        """The type on the wire: "queued", "delta", "finished" and so on."""
        return str(self.__struct_config__.tag)

    def json(self) -> str:
        """Return the event as on the wire: one line of JSON, ready for an SSE `data:` field or a log."""
        return msgspec.json.encode(self).decode()


class QueuedEvent(_Event, frozen=True, tag="queued"):
    """The job is in its lane."""


class StartedEvent(_Event, frozen=True, tag="started"):
    """A worker has claimed the job for the first time."""


class RestartedEvent(_Event, frozen=True, tag="restarted"):
    """A worker runs the job anew: ignore everything that was streamed before."""


class DeltaEvent(_Event, frozen=True, kw_only=True, tag="delta"):
    """The next piece of the answer or the caption."""

    text: str


class ReasoningEvent(_Event, frozen=True, kw_only=True, tag="reasoning"):
    """The next piece of the reasoning."""

    text: str


class ObjectEvent(_Event, frozen=True, kw_only=True, tag="object"):
    """The next box (detect: x_min, y_min, x_max, y_max) or point (point: x, y)."""

    object: dict[str, float]


class SegmentEvent(_Event, frozen=True, kw_only=True, tag="segment"):
    """The next segment of a transcript; `words` are its words if the job asks for their times."""

    segment: TranscriptSegment
    words: list[TranscriptWord] | None = None


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

Event = (
    QueuedEvent
    | StartedEvent
    | RestartedEvent
    | DeltaEvent
    | ReasoningEvent
    | ObjectEvent
    | SegmentEvent
    | TerminalEvent
)


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a type that this version does not know: count its `seq`, and skip it.

    A later version may add types. Only the fields common to all events are read; a missing one is an error as usual.
    """

    type: str
    id: str
    seq: Annotated[int, msgspec.Meta(ge=0)]
    v: Version = msgspec.field(default_factory=current)
    attempt: Annotated[int, msgspec.Meta(ge=0)] = 0
