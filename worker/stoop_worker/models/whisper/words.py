"""Words and their times, from the times of ids."""

import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeVar

from stoop_worker.engine.window import Segment, Word
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.alignment import Alignment

__all__ = ["Pieces", "split", "timed_words", "words_of_segments"]

_Spoken = TypeVar("_Spoken", Segment, Word)

_UNSPACED = frozenset(("zh", "ja", "th", "lo", "my", "yue"))
"""Languages without spaces between words: every complete character is a word of its own."""

_ENDS = ".。!！?？"
_OPENING = "\"'“¿([{-"
_CLOSING = "\"'.。,，!！?？:：”)]}、"
_LONGEST_MEDIAN = 0.7  # seconds
_FAR = 0.5  # seconds between a segment's border and a word's


@dataclass(frozen=True, slots=True)
class Pieces:
    """A word and its ids."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Timed:
    """A word and how many ids it has, which count for its segment."""

    word: Word
    ids: int


def split(ids: Sequence[int], language: str, tokenizer: Tokenizer) -> list[Pieces]:
    """Split ids into words: at spaces and punctuation, or at every complete character."""
    found: list[Pieces] = []
    for piece in _characters(ids, tokenizer):
        begins = piece.text.startswith(" ") or piece.text.strip() in string.punctuation
        if language in _UNSPACED or begins or not found:
            found.append(piece)
        else:
            found[-1] = Pieces(found[-1].text + piece.text, found[-1].ids + piece.ids)
    return found


def timed_words(pieces: Sequence[Pieces], alignment: Alignment) -> list[Word]:
    """Give each word the time of its first id, the time after its last id, and the mean of their probabilities."""
    words, first = [], 0
    for piece in pieces:
        after = first + len(piece.ids)
        shares = alignment.probabilities[first:after]
        words.append(Word(piece.text, alignment.times[first], alignment.times[after], fmean(shares)))
        first = after
    return words


def words_of_segments(
    segments: Sequence[Segment],
    pieces: Sequence[Pieces],
    words: Sequence[Word],
    *,
    text_below: int,
    pause: float = 0.0,
) -> list[tuple[Segment, tuple[Word, ...]]]:
    """Return each segment with its words, whose borders match; ids below `text_below` are text.

    The last word before the window ended `pause` seconds before it.

    Words that are too long end where their sentence does, punctuation joins its word, and the first and last words of
    a segment are cut to its borders if they are far outside. Otherwise the words move the borders.
    """
    usual = _usual_length(words)
    timed = [_Timed(word, len(piece.ids)) for word, piece in zip(_shortened(words, 2 * usual), pieces, strict=True)]
    left = iter(_joined(timed))
    spoken_until = -pause
    placed: list[tuple[Segment, tuple[Word, ...]]] = []
    for segment in segments:
        inside = list(_take(left, sum(token < text_below for token in segment.tokens)))
        inside = _after_pause(inside, spoken_until, usual)
        segment, inside = _agree(segment, inside, usual)
        spoken_until = segment.end if inside else spoken_until
        placed.append((_rounded(segment), tuple(map(_rounded, inside))))
    return placed


def _characters(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[Pieces]:
    """Cut ids after every complete character; a character that never becomes complete is cut at its place."""
    whole, offset, held = tokenizer.detokenize(ids), 0, []
    for token in ids:
        held.append(token)
        text = tokenizer.detokenize(held)
        torn = text.find("\ufffd")
        if torn < 0 or whole[offset + torn : offset + torn + 1] == "\ufffd":
            yield Pieces(text, tuple(held))
            offset, held = offset + len(text), []
    if held:
        yield Pieces(tokenizer.detokenize(held), tuple(held))


def _usual_length(words: Iterable[Word]) -> float:
    lengths = [word.end - word.start for word in words if word.end > word.start]
    return min(_LONGEST_MEDIAN, median(lengths)) if lengths else 0.0


def _shortened(words: Sequence[Word], most: float) -> list[Word]:
    """Cut words longer than `most` at the mark that ends their sentence: silence follows it."""
    found = list(words)
    for at in range(1, len(found) if most else 0):
        word = found[at]
        if word.end - word.start <= most:
            continue
        if word.word in _ENDS:
            found[at] = replace(word, end=word.start + most)
        elif found[at - 1].word in _ENDS:
            found[at] = replace(word, start=word.end - most)
    return found


def _joined(words: Sequence[_Timed]) -> list[_Timed]:
    """Join opening punctuation with the word after it, and closing punctuation with the word before it."""
    opened: list[_Timed] = []
    for each in reversed(words):
        mark = each.word.word
        if opened and mark.startswith(" ") and mark.strip() in _OPENING:
            opened[-1] = _join(each, opened[-1], times_of=opened[-1])
        else:
            opened.append(each)
    closed: list[_Timed] = []
    for each in reversed(opened):
        if closed and not closed[-1].word.word.endswith(" ") and each.word.word in _CLOSING:
            closed[-1] = _join(closed[-1], each, times_of=closed[-1])
        else:
            closed.append(each)
    return closed


def _join(first: _Timed, second: _Timed, *, times_of: _Timed) -> _Timed:
    return _Timed(replace(times_of.word, word=first.word.word + second.word.word), first.ids + second.ids)


def _take(left: Iterator[_Timed], ids: int) -> Iterator[Word]:
    """Take the words that have the next `ids` ids."""
    while ids > 0 and (each := next(left, None)) is not None:
        ids -= each.ids
        yield each.word


def _rounded(timed: _Spoken) -> _Spoken:
    return replace(timed, start=round(timed.start, 2), end=round(timed.end, 2))


def _after_pause(words: list[Word], until: float, usual: float) -> list[Word]:
    """Shorten a first word that takes in the pause after the last segment, which lasted `until`."""
    if not words or not _takes_in_pause(words, until, usual):
        return words
    first, *others = words
    if others and others[0].end - others[0].start > 2 * usual:
        border = max(others[0].end / 2, others[0].end - 2 * usual)
        first, others[0] = replace(first, end=border), replace(others[0], start=border)
    return [replace(first, start=max(0.0, first.end - 2 * usual)), *others]


def _takes_in_pause(words: Sequence[Word], until: float, usual: float) -> bool:
    first = words[0]
    is_long = first.end - first.start > 2 * usual
    are_long = len(words) > 1 and words[1].end - first.start > 4 * usual
    return first.end - until > 4 * usual and (is_long or are_long)


def _agree(segment: Segment, words: list[Word], usual: float) -> tuple[Segment, list[Word]]:
    if not words:
        return segment, words
    first = words[0]
    if segment.start < first.end and segment.start - _FAR > first.start:
        words[0] = replace(first, start=max(0.0, min(first.end - usual, segment.start)))
    else:
        segment = replace(segment, start=first.start)
    last = words[-1]
    if segment.end > last.start and segment.end + _FAR < last.end:
        words[-1] = replace(last, end=max(last.start + usual, segment.end))
    else:
        segment = replace(segment, end=last.end)
    return segment, words
