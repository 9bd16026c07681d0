"""A job's events as the pieces of its text. Text already returned cannot be taken back.

When a worker runs a job again, its text starts from nothing. If the new text begins with the text already returned, the
pieces continue from there, and the reader notices only a pause. If it differs, `JobRestarted` is raised.
"""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from stoop.client.events import completed, ending
from stoop.errors import JobRestarted
from stoop_schemas.event import DeltaEvent, Event, ReasoningEvent, RestartedEvent, TerminalEvent
from stoop_schemas.result import Result

__all__ = ["TextStream"]


class TextStream:
    """The pieces of one job's text as they arrive; iterate it once.

    `reasoning` is {"text", "grounding"}: the text is complete once the answer begins, and the grounding once the
    stream has ended. Raises `JobFailed` and its kin, `TimedOut` and `JobRestarted`.
    """

    def __init__(self, job_id: str, events: AsyncGenerator[Event, None]) -> None:
        self.job_id = job_id
        self.reasoning: dict[str, Any] = {"text": "", "grounding": []}
        self._events = events
        self._given = ""
        self._text = ""
        self._ended = False

    async def skip_reasoning(self) -> None:
        """Wait until the answer begins, so that `reasoning["text"]` is complete."""
        while not self._text and not self._ended:
            await self._read()

    def __aiter__(self) -> "TextStream":
        return self

    async def __anext__(self) -> str:
        while True:
            fresh = self._fresh()
            if fresh:
                self._given += fresh
                return fresh
            if self._ended:
                raise StopAsyncIteration
            await self._read()

    async def aclose(self) -> None:
        """Stop following the job, which keeps running; idempotent."""
        await self._events.aclose()

    def _fresh(self) -> str:
        if self._text.startswith(self._given):
            return self._text[len(self._given) :]
        if self._given.startswith(self._text) and not self._ended:
            return ""
        raise JobRestarted(self.job_id)

    async def _read(self) -> None:
        event = await anext(self._events)
        if isinstance(event, DeltaEvent):
            self._text += event.text
        elif isinstance(event, ReasoningEvent):
            self.reasoning["text"] += event.text
        elif isinstance(event, RestartedEvent):
            self._text = self.reasoning["text"] = ""
        elif isinstance(event, TerminalEvent):
            # close now, because a caller does not advance a stream that has ended
            await self._events.aclose()
            self._finish(completed(ending(event)))

    def _finish(self, result: Result) -> None:
        output = result.output
        assert output is not None, "a completed job has an output"
        self._ended = True
        self._text = output.text or ""
        if output.reasoning is not None:
            self.reasoning.update(msgspec.to_builtins(output.reasoning))
