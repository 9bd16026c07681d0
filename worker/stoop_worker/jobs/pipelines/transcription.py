"""A recording, window by window, to its passages.

The loop is that of Whisper's own `transcribe`: a window begins where the last whole segment of the one before ended,
and the model reads what it wrote before. A window that needed a high temperature is not read again, because its errors
would be repeated.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from stoop_worker.audio import FRAMES_PER_SECOND, Recording
from stoop_worker.engine.request import Finished, FinishReason, Request, Segment, Transcribe, Usage, Word
from stoop_worker.jobs.pipelines.attempts import Attempt, Run, is_silent, most_plausible
from stoop_worker.jobs.pipelines.passage import Passage, Transcription

__all__ = ["transcribe"]

_SHORTEST: Final = FRAMES_PER_SECOND // 10
"""Frames below which a rest of the recording holds no words."""

_LEAST_ADVANCE: Final = FRAMES_PER_SECOND // 2
"""Frames between two windows at least: a recording that confuses the model must not cost a window every 0.02 s."""

_TRUSTED: Final = 0.5
"""The model reads the text of a window again if no higher temperature was tried."""

_HISTORY: Final = 448
"""Ids of history that are kept; a model reads fewer."""


async def transcribe(
    request: Request,
    recording: Recording,
    temperatures: tuple[float, ...],
    *,
    run: Run,
    report: Callable[[Passage], None],
) -> Transcription:
    """Write down a recording by many requests like this one, and call `report` with each passage once it is known.

    The request's task is a `Transcribe`. Raises what `run` raises.
    """
    assert isinstance(request.task, Transcribe), "only speech is transcribed"
    script = _Script(request.task, recording, report)
    while recording.count - script.seek >= _SHORTEST:
        mel = recording.window(script.seek)
        asked = replace(request, task=script.task, media=(mel,))
        script.take(await most_plausible(asked, temperatures, run, script.spent), mel.content)
    return script.end()


class _Script:
    """What is known of a recording so far: the passages, and the task for the next window, at frame `seek`."""

    def __init__(self, task: Transcribe, recording: Recording, report: Callable[[Passage], None]) -> None:
        self.task = task
        self.seek = 0
        self._duration = recording.duration
        self._report = report
        self._passages: list[Passage] = []
        self._usage: Usage | None = None
        self._reason = FinishReason.STOP

    def spent(self, finished: Finished) -> None:
        """Count an attempt, and keep the language that it found."""
        self._usage = finished.usage if self._usage is None else _sum(self._usage, finished.usage)
        if self.task.language is None and finished.window is not None:
            self.task = replace(self.task, language=finished.window.language)

    def take(self, attempt: Attempt, content: int) -> None:
        """Keep the passages of a window of `content` frames, and move to the next one."""
        window = attempt.window
        if is_silent(window):
            self.seek += content
            return
        if attempt.finished.reason is FinishReason.LENGTH:
            self._reason = FinishReason.LENGTH
        for segment, words in _with_words(window.segments, window.words):
            passage = self._passage(attempt, segment, words)
            self._passages.append(passage)
            self._report(passage)
        self._remember(attempt)
        advance = round(window.advance * FRAMES_PER_SECOND)
        self.seek += min(max(advance, _LEAST_ADVANCE), content) if advance > 0 else content

    def end(self) -> Transcription:
        """Return all passages."""
        usage = self._usage or Usage(0, 0, 0, 0.0, 0.0, 0.0)
        return Transcription(self.task.language or "", self._duration, tuple(self._passages), usage, self._reason)

    def _passage(self, attempt: Attempt, segment: Segment, words: tuple[Word, ...]) -> Passage:
        moved = replace(segment, start=self._time(segment.start), end=self._time(segment.end))
        placed = tuple(replace(word, start=self._time(word.start), end=self._time(word.end)) for word in words)
        return Passage(len(self._passages), self.seek, moved, placed, attempt.window, attempt.temperature)

    def _time(self, seconds: float) -> float:
        """Return a time of the window as one of the recording, which no time is beyond."""
        return round(min(self.seek / FRAMES_PER_SECOND + seconds, self._duration), 3)

    def _remember(self, attempt: Attempt) -> None:
        if attempt.hottest > _TRUSTED:
            self.task = replace(self.task, history=(), prompt=None)
            return
        fresh = (token for segment in attempt.window.segments for token in segment.tokens)
        self.task = replace(self.task, history=(*self.task.history, *fresh)[-_HISTORY:])


def _with_words(segments: tuple[Segment, ...], words: tuple[Word, ...]) -> Iterator[tuple[Segment, tuple[Word, ...]]]:
    """Give each segment the words that begin before the next one; the last has the rest."""
    rest = words
    for number, segment in enumerate(segments):
        until = segments[number + 1].start if number + 1 < len(segments) else float("inf")
        own = next((at for at, word in enumerate(rest) if word.start >= until), len(rest))
        yield segment, rest[:own]
        rest = rest[own:]


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        prefill_time_ms=one.prefill_time_ms + other.prefill_time_ms,
        decode_time_ms=one.decode_time_ms + other.decode_time_ms,
        ttft_ms=one.ttft_ms,
    )
