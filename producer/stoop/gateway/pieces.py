"""A job's events as the pieces that a stream sends. Text that was sent cannot be taken back.

When a worker runs a job again, its text starts from nothing. If the new text begins with the text already sent, the
pieces continue from there. If it differs, `JobRestarted` is raised.
"""

from dataclasses import dataclass
from typing import Literal

from stoop.client.events import completed, ending
from stoop.errors import JobRestarted
from stoop.gateway.follower import Follower
from stoop_schemas.event import DeltaEvent, Event, ReasoningEvent, RestartedEvent, SegmentEvent, TerminalEvent
from stoop_schemas.result import Result

__all__ = ["Piece", "Pieces"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The next text of the answer or of the reasoning before it."""

    kind: Literal["answer", "reasoning"]
    text: str


class Pieces:
    """Reads one job; `result` is set once it has completed. Boxes and points come with the result."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._answer = _Grown(follower.job_id)
        self._reasoning = _Grown(follower.job_id)
        self.result: Result | None = None
        self._segments = ""

    async def next(self) -> list[Piece]:
        """Wait for the next pieces; with the end of the job there may be none.

        Raises the error of a job that did not complete, `JobRestarted`, and the follower's own errors.
        """
        while True:
            self._take(await self._follower.next())
            ended = self.result is not None
            fresh = [
                Piece("reasoning", self._reasoning.fresh(ended=ended)),
                Piece("answer", self._answer.fresh(ended=ended)),
            ]
            found = [piece for piece in fresh if piece.text]
            if found or ended:
                return found

    def _take(self, event: Event) -> None:
        if isinstance(event, DeltaEvent):
            self._answer.text += event.text
        elif isinstance(event, SegmentEvent):
            self._segments += event.segment.text
            self._answer.text = self._segments.strip()
        elif isinstance(event, ReasoningEvent):
            self._reasoning.text += event.text
        elif isinstance(event, RestartedEvent):
            self._answer.text = self._reasoning.text = self._segments = ""
        elif isinstance(event, TerminalEvent):
            self.result = completed(ending(event))
            output = self.result.output
            self._answer.text = (output.text if output else None) or ""
            if output is not None and output.reasoning is not None:
                self._reasoning.text = output.reasoning.text


class _Grown:
    """A text that may start over, and the part of it that was sent."""

    def __init__(self, job_id: str) -> None:
        self.text = ""
        self._sent = ""
        self._job_id = job_id

    def fresh(self, *, ended: bool) -> str:
        if self.text.startswith(self._sent):
            fresh = self.text[len(self._sent) :]
            self._sent = self.text
            return fresh
        if self._sent.startswith(self.text) and not ended:
            return ""
        raise JobRestarted(self._job_id)
