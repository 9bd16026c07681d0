"""Turns decoded frames into mono samples of one rate, also where the form of the frames changes within a file.

Frames are joined to blocks first: a call for each of their few hundred samples would take most of the time.
"""

from collections.abc import Generator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from av import AudioFifo, AudioFrame, AudioResampler

__all__ = ["BLOCK", "blocks", "resampled"]

BLOCK: Final = 1 << 17
"""Samples that are resampled by one call."""


def blocks(frames: "Iterator[AudioFrame]") -> "Generator[AudioFrame, None, None]":
    """Join frames of one form to blocks of seconds; a frame that claims an impossible form is skipped."""
    import av

    form: tuple[int, str, str] | None = None
    joined: AudioFifo | None = None
    for frame in frames:
        try:
            if joined is None or _form(frame) != form:
                yield from _rest(joined)
                form, joined = _form(frame), av.AudioFifo()
            frame.pts = None  # a gap in the times is not filled up
            joined.write(frame)
        except (av.FFmpegError, ValueError):
            joined = None
        if joined is not None and joined.samples >= BLOCK:
            yield from _rest(joined)
    yield from _rest(joined)


def resampled(blocks: "Iterator[AudioFrame]", rate: int) -> Iterator[npt.NDArray[np.int16]]:
    """Yield the samples of blocks as mono at `rate` a second, int16; channels are averaged."""
    import av

    form: tuple[int, str, str] | None = None
    resampler: AudioResampler | None = None
    for block in chain(blocks, (None,)):
        try:
            if resampler is not None and (block is None or _form(block) != form):
                yield from _samples(resampler.resample(None))
                resampler = None
            if block is not None:
                form = _form(block)
                resampler = resampler or av.AudioResampler(format="s16", layout="mono", rate=rate)
                yield from _samples(resampler.resample(block))
        except (av.FFmpegError, ValueError):
            resampler = None


def _form(frame: "AudioFrame") -> tuple[int, str, str]:
    return frame.sample_rate, frame.layout.name, frame.format.name


def _rest(joined: "AudioFifo | None") -> "Iterator[AudioFrame]":
    """Yield all that was joined so far, if there is anything."""
    block = joined.read() if joined else None
    if block:
        yield block


def _samples(frames: "list[AudioFrame]") -> Iterator[npt.NDArray[np.int16]]:
    for frame in frames:
        yield frame.to_ndarray().reshape(-1).astype(np.int16, copy=False)
