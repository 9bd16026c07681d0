"""A job's events as the segments of its transcript. Segments already returned cannot be taken back.

When a worker runs a job again, its segments start from the first. If they have the times and the text of those already
returned, the stream continues after them, and the reader notices only a pause. If they differ, or are fewer,
`JobRestarted` is raised.
"""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from stoop.client.events import completed, ending
from stoop.errors import JobRestarted
from stoop_schemas.event import Event, RestartedEvent, SegmentEvent, TerminalEvent

__all__ = ["SegmentStream"]


class SegmentStream:
    """The segments of one job's transcript as they arrive, each a dict with its `words` if asked for; iterate it once.

    `transcript` is the whole transcript once the stream has ended. Raises `JobFailed` and its kin, `TimedOut` and
    `JobRestarted`.
    """

    def __init__(self, job_id: str, events: AsyncGenerator[Event, None]) -> None:
        self.job_id = job_id
        self.transcript: dict[str, Any] = {}
        self._events = events
        self._given: list[dict[str, Any]] = []
        self._again = 0  # segments of a later run that were returned before

    def __aiter__(self) -> "SegmentStream":
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self.transcript:
            event = await anext(self._events)
            if isinstance(event, RestartedEvent):
                self._again = 0
            elif isinstance(event, SegmentEvent):
                if segment := self._fresh(event):
                    return segment
            elif isinstance(event, TerminalEvent):
                # close now, because a caller does not advance a stream that has ended
                await self._events.aclose()
                output = completed(ending(event)).output
                assert output is not None and output.transcript is not None, (
                    "a completed transcription has a transcript"
                )
                if self._again < len(self._given):
                    raise JobRestarted(self.job_id)
                self.transcript = msgspec.to_builtins(output.transcript)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop following the job, which keeps running; idempotent."""
        await self._events.aclose()

    def _fresh(self, event: SegmentEvent) -> dict[str, Any] | None:
        """Return the segment, or None if an earlier run gave the same; raises `JobRestarted` if it differs."""
        segment: dict[str, Any] = msgspec.to_builtins(event.segment)
        if event.words is not None:
            segment["words"] = msgspec.to_builtins(event.words)
        self._again += 1
        if self._again > len(self._given):
            self._given.append(segment)
            return segment
        if _spoken(self._given[self._again - 1]) != _spoken(segment):
            raise JobRestarted(self.job_id)
        return None


def _spoken(segment: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields that a reader relies on: probabilities differ a little from one batch or GPU to another."""
    return segment["start"], segment["end"], segment["text"]
