"""The transcript of one window of a recording. Times are seconds from the window's beginning."""

from dataclasses import dataclass

__all__ = ["Segment", "Window", "Word"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of speech; `tokens` are its ids, timestamps included."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """One word, with the spaces and punctuation around it; `probability` is the mean of its tokens'."""

    word: str
    start: float
    end: float
    probability: float


@dataclass(frozen=True, slots=True)
class Window:
    """The transcript of one window of 30 seconds.

    `language` is a code such as `en`, with its probability (1 if the request named it). `text` is decoded from
    `tokens`, the drawn ids without the end. `average_logprob` is the sum of their log-probabilities and the end's, by
    their number and one. `no_speech` is the probability of silence. `compression_ratio` is the size of the
    text by its size once compressed: a high one means repetition. `words` is empty unless the request asks for words.
    The next window begins `advance` seconds after this one.
    """

    language: str
    language_probability: float
    text: str
    tokens: tuple[int, ...]
    average_logprob: float
    no_speech: float
    compression_ratio: float
    segments: tuple[Segment, ...]
    words: tuple[Word, ...]
    advance: float
