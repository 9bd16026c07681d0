"""Stoop for back ends and scripts: submit jobs to GPU workers and read their answers.

AsyncClient, Client    submit, stream, wait, cancel; Moondream's methods on top
Job, Settings, Skill   the input of `submit`
Event and its members  the output of `stream`; each has `event.type` and `event.json()`
Result, Output, …      the output of `result`
LiveModel              one entry of `models`
StoopError, …          every error, drawn as a tree in `stoop.errors`
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoop.client.async_client import AsyncClient
    from stoop.client.blocking import Client
    from stoop.client.build_job import answer
    from stoop.client.models import LiveModel
    from stoop.errors import (
        AudioUnreadable,
        ClientUnusable,
        ConfigError,
        IdempotencyConflict,
        ImageUnreadable,
        InvalidJob,
        JobCancelled,
        JobExpired,
        JobFailed,
        JobRestarted,
        NotAQueue,
        NotFound,
        OutputGone,
        OutputUnreadable,
        QueueFull,
        QueueUnavailable,
        StoopError,
        TimedOut,
        UploadFailed,
    )
    from stoop.images.source import EncodedImage
    from stoop_schemas.event import (
        CancelledEvent,
        DeltaEvent,
        Event,
        ExpiredEvent,
        FailedEvent,
        FinishedEvent,
        ObjectEvent,
        QueuedEvent,
        ReasoningEvent,
        RestartedEvent,
        SegmentEvent,
        StartedEvent,
        TerminalEvent,
    )
    from stoop_schemas.failure import Failure, FailureCode
    from stoop_schemas.job import Job
    from stoop_schemas.result import Metrics, Result
    from stoop_schemas.skill import Box, CaptionLength, Output, Point, Reasoning, Settings, Skill
    from stoop_schemas.state import State
    from stoop_schemas.transcript import Timestamps, Transcript, TranscriptSegment, TranscriptWord

__all__ = [
    "AsyncClient",
    "AudioUnreadable",
    "Box",
    "CancelledEvent",
    "CaptionLength",
    "Client",
    "ClientUnusable",
    "ConfigError",
    "DeltaEvent",
    "EncodedImage",
    "Event",
    "ExpiredEvent",
    "FailedEvent",
    "Failure",
    "FailureCode",
    "FinishedEvent",
    "IdempotencyConflict",
    "ImageUnreadable",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobRestarted",
    "LiveModel",
    "Metrics",
    "NotAQueue",
    "NotFound",
    "ObjectEvent",
    "Output",
    "OutputGone",
    "OutputUnreadable",
    "Point",
    "QueueFull",
    "QueueUnavailable",
    "QueuedEvent",
    "Reasoning",
    "ReasoningEvent",
    "RestartedEvent",
    "Result",
    "SegmentEvent",
    "Settings",
    "Skill",
    "StartedEvent",
    "State",
    "StoopError",
    "TerminalEvent",
    "TimedOut",
    "Timestamps",
    "Transcript",
    "TranscriptSegment",
    "TranscriptWord",
    "UploadFailed",
    "answer",
]

# Where a name lives: events in `stoop_schemas.event`, errors in `stoop.errors`, the others here.
_HOMES = {
    "AsyncClient": "stoop.client.async_client",
    "Client": "stoop.client.blocking",
    "answer": "stoop.client.build_job",
    "LiveModel": "stoop.client.models",
    "EncodedImage": "stoop.images.source",
    "Failure": "stoop_schemas.failure",
    "FailureCode": "stoop_schemas.failure",
    "Job": "stoop_schemas.job",
    "Metrics": "stoop_schemas.result",
    "Result": "stoop_schemas.result",
    "Box": "stoop_schemas.skill",
    "CaptionLength": "stoop_schemas.skill",
    "Output": "stoop_schemas.skill",
    "Point": "stoop_schemas.skill",
    "Reasoning": "stoop_schemas.skill",
    "Settings": "stoop_schemas.skill",
    "Skill": "stoop_schemas.skill",
    "State": "stoop_schemas.state",
    "Timestamps": "stoop_schemas.transcript",
    "Transcript": "stoop_schemas.transcript",
    "TranscriptSegment": "stoop_schemas.transcript",
    "TranscriptWord": "stoop_schemas.transcript",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first used, because `stoop --help` needs none of them."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "stoop_schemas.event" if name.endswith("Event") else _HOMES.get(name, "stoop.errors")
        return getattr(import_module(home), name)

    def __dir__() -> list[str]:
        """List the names for `dir`, and so for completion in a Python shell, before they are imported."""
        return sorted({*globals(), *__all__})
