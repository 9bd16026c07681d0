"""Cuts the ids drawn for a window into segments, at the timestamps among them."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stoop_worker.engine.window import Segment
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.whisper.vocabulary import Vocabulary

__all__ = ["WINDOW_SECONDS", "Cut", "compression_ratio", "cut", "is_heard", "text_of", "uncut"]

WINDOW_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Cut:
    """All segments, also those without words or length, and the seconds after which the next window starts.

    `open_ended` is True if the last words may continue in the next window.
    """

    segments: tuple[Segment, ...]
    advance: float
    open_ended: bool


def cut(tokens: Sequence[int], vocabulary: Vocabulary, tokenizer: Tokenizer) -> Cut:
    """Cut drawn ids, without the end, at each pair of timestamps. The text after the last pair is left to the next
    window, unless a single timestamp ends it, because then silence follows. Without a pair all ids are one segment.
    """
    stamps = [vocabulary.is_stamp(token) for token in tokens]
    ends_alone = stamps[-2:] == [False, True]
    pairs = [at for at in range(1, len(tokens)) if stamps[at - 1] and stamps[at]]
    if not pairs:
        last = next((token for token in reversed(tokens) if vocabulary.is_stamp(token)), vocabulary.first_stamp)
        end = vocabulary.seconds(last) or WINDOW_SECONDS
        return Cut(_segments([(0.0, end, tokens)], vocabulary, tokenizer), WINDOW_SECONDS, open_ended=not ends_alone)
    bounds = [0, *pairs, len(tokens)] if ends_alone else [0, *pairs]
    parts = [tokens[start:end] for start, end in pairwise(bounds)]
    timed = [(_time(part[0], vocabulary), _time(part[-1], vocabulary), part) for part in parts]
    advance = WINDOW_SECONDS if ends_alone else timed[-1][1]
    return Cut(_segments(timed, vocabulary, tokenizer), advance, open_ended=not ends_alone)


def uncut(tokens: Sequence[int], vocabulary: Vocabulary, tokenizer: Tokenizer) -> Cut:
    """Return all ids of a window as one segment, for a request without timestamps."""
    return Cut(_segments([(0.0, WINDOW_SECONDS, tokens)], vocabulary, tokenizer), WINDOW_SECONDS, open_ended=True)


def is_heard(segment: Segment) -> bool:
    """Return True if a segment has words and a length."""
    return bool(segment.text.strip()) and segment.start != segment.end


def text_of(tokens: Sequence[int], vocabulary: Vocabulary, tokenizer: Tokenizer) -> str:
    """Return the text of ids, without times."""
    return tokenizer.detokenize([token for token in tokens if token < vocabulary.end])


def compression_ratio(text: str) -> float:
    """Return the size of a text by its size when zlib has compressed it: repetition makes it high."""
    encoded = text.encode()
    return len(encoded) / len(zlib.compress(encoded))


def _time(token: int, vocabulary: Vocabulary) -> float:
    return max(0.0, vocabulary.seconds(token))


def _segments(
    timed: Sequence[tuple[float, float, Sequence[int]]], vocabulary: Vocabulary, tokenizer: Tokenizer
) -> tuple[Segment, ...]:
    return tuple(
        Segment(start, end, text_of(tokens, vocabulary, tokenizer), tuple(tokens)) for start, end, tokens in timed
    )
