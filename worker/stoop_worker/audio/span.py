"""Parts of a recording, and cutting it where it is quiet."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND

__all__ = ["Span", "end_of_window", "in_windows"]

_SEARCHED: Final = 10 * FRAMES_PER_SECOND
"""Frames at the end of a full window, among which it is cut."""

_PAUSE: Final = 3 * FRAMES_PER_SECOND // 10
"""Frames over which loudness is averaged: the pause inside of a consonant is shorter than one between words."""


@dataclass(frozen=True, slots=True)
class Span:
    """The frames of a recording from `start` up to `stop`."""

    start: int
    stop: int


def in_windows(frames: npt.NDArray[np.float32], spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return spans of a window at most that cover these: long ones are cut where they are quiet, short ones joined.

    `frames` are the log-mel features, (mels, number of frames). The frames between two joined spans belong to
    the new one.
    """
    found: list[Span] = []
    for piece in (piece for span in spans for piece in _cut(frames, span)):
        if found and piece.stop - found[-1].start <= FRAMES:
            found[-1] = Span(found[-1].start, piece.stop)
        else:
            found.append(piece)
    return tuple(found)


def _cut(frames: npt.NDArray[np.float32], span: Span) -> Iterator[Span]:
    start = span.start
    while span.stop - start > FRAMES:
        stop = start + end_of_window(frames[:, start:])
        yield Span(start, stop)
        start = stop
    yield Span(start, span.stop)


def end_of_window(frames: npt.NDArray[np.float32]) -> int:
    """Return the frame at which to end the window that these more than 3000 frames begin with."""
    return _quietest(frames, FRAMES - _SEARCHED, FRAMES)


def _quietest(frames: npt.NDArray[np.float32], start: int, stop: int) -> int:
    """Return the middle of the quietest moment in [start, stop); of several, the last."""
    loudness = np.convolve(frames[:, start:stop].mean(axis=0), np.ones(_PAUSE) / _PAUSE, mode="valid")
    from_end = int(np.argmin(loudness[::-1].round(3)))
    return start + len(loudness) - 1 - from_end + _PAUSE // 2
