"""A recording, window by window, to its passages.

The loop over the windows of a span is that of Whisper's own `transcribe`: a window begins where the last whole segment
of the one before ended, and the model reads its text from before. A window that needed a high temperature is not read
again, because its errors would be repeated. Spans that are heard at the same time do not know each other's text.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

from stoop_worker.audio import FRAMES_PER_SECOND, Recording, Span
from stoop_worker.engine.request import Request, Transcribe
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.pipelines.attempts import Attempt, Run, is_silent, most_plausible
from stoop_worker.jobs.pipelines.passage import Passage, Transcription
from stoop_worker.jobs.pipelines.script import Place, Script

__all__ = ["Windows", "transcribe"]

_SHORTEST: Final = FRAMES_PER_SECOND // 10
"""Frames below which a rest of the recording holds no words."""

_LEAST_ADVANCE: Final = FRAMES_PER_SECOND // 2
"""Frames between two windows at least: a recording that confuses the model must not cost a window every 0.02 s."""

_TRUSTED: Final = 0.5
"""The model reads the text of a window again if no higher temperature was tried."""

_HISTORY: Final = 448
"""Ids of history that are kept; a model reads fewer."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows that one recording may have at the same time: one, or with `at_once` as many as it has spans.

    Each is borrowed from `budget`, which bounds the windows of all recordings together.
    """

    budget: Budget
    at_once: bool = False


async def transcribe(
    request: Request,
    recording: Recording,
    temperatures: tuple[float, ...],
    *,
    run: Run,
    report: Callable[[Passage], None],
    windows: Windows,
) -> Transcription:
    """Write down a recording by many requests like this one, and call `report` with each passage once it is known.

    The request's task is a `Transcribe`. If windows are heard at the same time, the ids of their requests begin with
    this one's. Passages are reported in the order of the recording in any case. Raises what `run` raises, and
    `AudioTooLarge` if there is more text than a transcript may have.
    """
    assert isinstance(request.task, Transcribe), "only speech is transcribed"
    script = Script(recording.duration, request.task.language, report)
    hearing = _Hearing(request, recording, temperatures, run, script)
    if windows.at_once:
        await _hear_at_once(hearing, request.task, windows.budget)
    else:
        task = request.task
        for number in range(len(recording.spans)):
            task = await hearing.hear(number, task, windows.budget)
    return script.end()


async def _hear_at_once(hearing: "_Hearing", task: Transcribe, windows: Budget) -> None:
    """Hear spans at the same time; without a language the first one alone, because its language is that of all."""
    one_waits = asyncio.Lock()
    alone = 1 if task.language is None else 0

    async def hear(number: int) -> None:
        async with one_waits:  # so that recordings take turns, however many spans each has
            loan = await windows.borrow(1, hearing.request.priority)
        with loan:
            await hearing.named(f"{hearing.request.id}/{number}").hear(number, known)

    spans = range(len(hearing.recording.spans))
    for number in spans[:alone]:
        await hearing.hear(number, task, windows)
    known = replace(task, language=hearing.script.language)
    try:
        async with asyncio.TaskGroup() as group:
            for number in spans[alone:]:
                group.create_task(hear(number))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


@dataclass(frozen=True, slots=True)
class _Hearing:
    """Hears spans of one recording, and writes their text into the script."""

    request: Request
    recording: Recording
    temperatures: tuple[float, ...]
    run: Run
    script: Script

    def named(self, request_id: str) -> "_Hearing":
        """Return one whose requests have another id."""
        return replace(self, request=replace(self.request, id=request_id))

    async def hear(self, number: int, task: Transcribe, windows: Budget | None = None) -> Transcribe:
        """Hear the span of this number, and return the task for one that follows it.

        Without `windows` the caller has borrowed one, which is enough because a span has one at a time.
        """
        span = self.recording.spans[number]
        seek = span.start
        while span.stop - seek >= _SHORTEST:
            attempt, content = await self._attempt(seek, span, task, windows)
            task = replace(task, language=self.script.language)
            if is_silent(attempt.window):
                seek += content
                continue
            self.script.take(attempt, Place(number, seek, content, ends=seek + content == self.recording.count))
            task = _after(task, attempt)
            advance = round(attempt.window.advance * FRAMES_PER_SECOND)
            seek += min(max(advance, _LEAST_ADVANCE), content) if advance > 0 else content
        self.script.close(number)
        return task

    async def _attempt(self, seek: int, span: Span, task: Transcribe, windows: Budget | None) -> tuple[Attempt, int]:
        """Hear one window, and return the attempt that counts, and the frames that the window has of the recording."""
        with nullcontext() if windows is None else await windows.borrow(1, self.request.priority):
            mel = self.recording.window(seek, span.stop)
            asked = replace(self.request, task=task, media=(mel,))
            return await most_plausible(asked, self.temperatures, self.run, self.script.spend), mel.content


def _after(task: Transcribe, attempt: Attempt) -> Transcribe:
    """Return the task for the window after this attempt."""
    if attempt.hottest > _TRUSTED:
        return replace(task, history=(), prompt=None)
    fresh = (token for segment in attempt.window.segments for token in segment.tokens)
    return replace(task, history=(*task.history, *fresh)[-_HISTORY:])
