"""The transcript of a recording while it grows: passages in the order of the recording, in whatever order they are
found.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from stoop_worker.audio import FRAMES_PER_SECOND
from stoop_worker.engine.request import Finished, FinishReason, Segment, Usage, Word
from stoop_worker.errors import AudioTooLarge
from stoop_worker.jobs.pipelines.attempts import Attempt
from stoop_worker.jobs.pipelines.passage import Passage, Transcription

__all__ = ["Place", "Script"]

_MOST_BYTES: Final = 16 << 20
"""Bytes of a transcript as JSON, about: it must fit into a value of Redis, with room for those of others."""

_SEGMENT_BYTES, _TOKEN_BYTES, _WORD_BYTES = 240, 7, 90


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a window: its span's number, the frame at which it begins, and the second at which it ends."""

    span: int
    seek: int
    end: float


class Script:
    """The passages found so far. Those of later spans are held back until every earlier span is closed.

    `language` is the one asked for, or the first that was found.
    """

    def __init__(self, language: str | None, report: Callable[[Passage], None]) -> None:
        self.language = language
        self._report = report
        self._passages: list[Passage] = []
        self._held: dict[int, list[Passage]] = {}
        self._closed: set[int] = set()
        self._open = 0  # the number of the span whose passages are reported at once
        self._bytes = 0
        self._usage: Usage | None = None
        self._reason = FinishReason.STOP

    def spend(self, finished: Finished) -> None:
        """Count an attempt, and keep the language that it found."""
        self._usage = finished.usage if self._usage is None else _sum(self._usage, finished.usage)
        if self.language is None and finished.window is not None:
            self.language = finished.window.language

    def take(self, attempt: Attempt, place: Place) -> None:
        """Keep the passages of a window; raises `AudioTooLarge` if they are too many."""
        if attempt.finished.reason is FinishReason.LENGTH:
            self._reason = FinishReason.LENGTH
        for passage in self._passages_of(attempt, place):
            self._bytes += _bytes(passage)
            if self._bytes > _MOST_BYTES:
                raise AudioTooLarge(
                    f"the transcript has more than {_MOST_BYTES >> 20} MiB: cut the recording into parts"
                )
            if place.span == self._open:
                self._emit(passage)
            else:
                self._held.setdefault(place.span, []).append(passage)

    def close(self, span: int) -> None:
        """Report the passages that were held back until this span had ended."""
        self._closed.add(span)
        while self._open in self._closed:
            self._open += 1
            for passage in self._held.pop(self._open, ()):
                self._emit(passage)

    def end(self, duration: float) -> Transcription:
        """Return all passages; `seconds` is the length of the recording."""
        usage = self._usage or Usage(0, 0, 0, 0.0, 0.0, 0.0)
        return Transcription(self.language or "", duration, tuple(self._passages), usage, self._reason)

    def _emit(self, passage: Passage) -> None:
        numbered = replace(passage, number=len(self._passages))
        self._passages.append(numbered)
        self._report(numbered)

    def _passages_of(self, attempt: Attempt, place: Place) -> Iterator[Passage]:
        """Return the segments of a window that begin within it, as times of the recording.

        The model may place a segment after the end of a short window, where there is nothing. If it is the first one,
        it still has words, so the segment begins with the window.
        """
        begin = place.seek / FRAMES_PER_SECOND

        def within(seconds: float) -> float:
            return round(min(begin + seconds, place.end), 3)

        for number, (segment, words) in enumerate(_with_words(attempt.window.segments, attempt.window.words)):
            start = 0.0 if number == 0 and begin + segment.start >= place.end else segment.start
            if begin + start >= place.end:
                continue
            moved = replace(segment, start=within(start), end=within(segment.end))
            placed = tuple(replace(word, start=within(word.start), end=within(word.end)) for word in words)
            yield Passage(0, place.seek, moved, placed, attempt.window, attempt.temperature)


def _with_words(segments: tuple[Segment, ...], words: tuple[Word, ...]) -> Iterator[tuple[Segment, tuple[Word, ...]]]:
    """Give each segment the words that begin before the next one; the last has the rest."""
    rest = words
    for number, segment in enumerate(segments):
        until = segments[number + 1].start if number + 1 < len(segments) else float("inf")
        own = next((at for at, word in enumerate(rest) if word.start >= until), len(rest))
        yield segment, rest[:own]
        rest = rest[own:]


def _bytes(passage: Passage) -> int:
    """Return the size of a passage as JSON, about."""
    text = len(passage.segment.text.encode()) + sum(len(word.word.encode()) for word in passage.words)
    return _SEGMENT_BYTES + _TOKEN_BYTES * len(passage.segment.tokens) + _WORD_BYTES * len(passage.words) + text


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        prefill_time_ms=one.prefill_time_ms + other.prefill_time_ms,
        decode_time_ms=one.decode_time_ms + other.decode_time_ms,
        ttft_ms=one.ttft_ms,
    )
