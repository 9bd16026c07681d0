"""A recording, window by window, to its passages.

The loop over the windows of a span is that of Whisper's own `transcribe`: a window begins where the last whole segment
of the one before ended, and the model reads its text from before. A window that needed a high temperature is not read
again, because its errors would be repeated. Spans that are transcribed at the same time do not see each other's text.
"""

import asyncio
from collections.abc import AsyncIterable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count
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
    parts: AsyncIterable[Recording],
    temperatures: tuple[float, ...],
    *,
    run: Run,
    report: Callable[[Passage], None],
    windows: Windows,
) -> Transcription:
    """Transcribe a recording by many requests like this one, and call `report` with each passage once it is known.

    The request's task is a `Transcribe`. The `parts` of the recording follow each other. If windows are transcribed at
    the same time, the ids of their requests begin with this one's. Passages are reported in the order of the recording
    in any case. Raises the errors of `run` and `parts`, and `AudioTooLarge` if there is more text than a transcript may
    have.
    """
    assert isinstance(request.task, Transcribe), "only speech is transcribed"
    script = Script(request.task.language, report)
    hearing = _Hearing(request, temperatures, run, script)
    hear = _hear_at_once if windows.at_once else _hear_in_order
    return script.end(await hear(hearing, parts, request.task, windows.budget))


async def _hear_in_order(
    hearing: "_Hearing", parts: AsyncIterable[Recording], task: Transcribe, windows: Budget
) -> float:
    """Hear one span after another; return the seconds of the recording."""
    duration, numbers = 0.0, count()
    async for part in parts:
        duration = part.end
        for span in part.spans:
            task = await hearing.hear(_Spoken(next(numbers), part, span), task, windows)
    return duration


async def _hear_at_once(
    hearing: "_Hearing", parts: AsyncIterable[Recording], task: Transcribe, windows: Budget
) -> float:
    """Transcribe spans concurrently, as they arrive; return the seconds of the recording.

    If no language is given, the first span is transcribed alone, and its language is used for the rest.
    """
    one_waits = asyncio.Lock()
    duration, numbers = 0.0, count()

    async def hear(spoken: _Spoken) -> None:
        async with one_waits:  # so that recordings take turns, however many spans each has
            loan = await windows.borrow(1, hearing.request.priority)
        with loan:
            await hearing.named(f"{hearing.request.id}/{spoken.number}").hear(spoken, known)

    known = task
    try:
        async with asyncio.TaskGroup() as group:
            async for part in parts:
                duration = part.end
                for span in part.spans:
                    spoken = _Spoken(next(numbers), part, span)
                    if known.language is None:
                        await hearing.hear(spoken, task, windows)
                        known = replace(task, language=hearing.script.language)
                    else:
                        group.create_task(hear(spoken))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return duration


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A span of a part, and the number of this span among all of the recording."""

    number: int
    part: Recording
    span: Span


@dataclass(frozen=True, slots=True)
class _Hearing:
    """Hears spans of one recording, and writes their text into the script."""

    request: Request
    temperatures: tuple[float, ...]
    run: Run
    script: Script

    def named(self, request_id: str) -> "_Hearing":
        """Return a copy whose requests have another id."""
        return replace(self, request=replace(self.request, id=request_id))

    async def hear(self, spoken: _Spoken, task: Transcribe, windows: Budget | None = None) -> Transcribe:
        """Transcribe a span, and return the task for the next span. Without `windows` the caller has borrowed a window,
        which is enough because a span has one at a time.
        """
        part, span = spoken.part, spoken.span
        seek = quiet_from = span.start
        while span.stop - seek >= _SHORTEST:
            task = replace(task, pause=(seek - quiet_from) / FRAMES_PER_SECOND if task.words else 0.0)
            attempt, content = await self._attempt(seek, spoken, task, windows)
            task = replace(task, language=self.script.language)
            if is_silent(attempt.window):
                seek += content
                continue
            after = seek + content
            end = part.end if after == part.count else (part.start + after) / FRAMES_PER_SECOND
            self.script.take(attempt, Place(spoken.number, part.start + seek, end))
            task = _after(task, attempt)
            if attempt.window.words:
                quiet_from = seek + round(attempt.window.words[-1].end * FRAMES_PER_SECOND)
            advance = round(attempt.window.advance * FRAMES_PER_SECOND)
            seek += min(max(advance, _LEAST_ADVANCE), content) if advance > 0 else content
        self.script.close(spoken.number)
        return replace(task, pause=0.0)

    async def _attempt(
        self, seek: int, spoken: _Spoken, task: Transcribe, windows: Budget | None
    ) -> tuple[Attempt, int]:
        """Hear one window, and return the attempt that counts, and the frames that the window has of the recording."""
        with nullcontext() if windows is None else await windows.borrow(1, self.request.priority):
            mel = spoken.part.window(seek, spoken.span.stop)
            asked = replace(self.request, task=task, media=(mel,))
            return await most_plausible(asked, self.temperatures, self.run, self.script.spend), mel.content


def _after(task: Transcribe, attempt: Attempt) -> Transcribe:
    """Return the task for the window after this attempt."""
    if attempt.hottest > _TRUSTED:
        return replace(task, history=(), prompt=None)
    fresh = (token for segment in attempt.window.segments for token in segment.tokens)
    return replace(task, history=(*task.history, *fresh)[-_HISTORY:])
