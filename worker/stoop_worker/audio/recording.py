"""A decoded file as features, whole or in parts, from which windows are cut."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.ahead import ahead, side_by_side
from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, Check, decode, decoded, go_on
from stoop_worker.audio.mel import (
    FRAMES,
    FRAMES_PER_SECOND,
    FrameStream,
    Mel,
    MelGeometry,
    log_mel,
    logarithms,
    normalised,
)
from stoop_worker.audio.span import Span, end_of_window, in_windows
from stoop_worker.audio.voice import voiced
from stoop_worker.errors import AudioUndecodable

__all__ = ["WHOLE", "Cutting", "Recording", "parts", "record", "recording_bytes"]

_Allocate = Callable[[tuple[int, ...]], npt.NDArray[np.uint8]]
"""Returns an array of bytes of the given shape, which the caller fills."""

_FLOAT_BYTES: Final = 4
_SILENCE_AFTER: Final = 480
"""Samples of silence after the end: the last frames look 200 samples beyond it."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """The rule for the parts of a recording to transcribe.

    With `speech_only`, parts without speech are left out. With `in_windows`, no part is longer than a window, and each
    begins and ends where it is quiet, so that all can be transcribed at the same time.
    """

    speech_only: bool = False
    in_windows: bool = False

    def cut(
        self, samples: npt.NDArray[np.int16], frames: npt.NDArray[np.float32], check: Check = go_on
    ) -> tuple[Span, ...]:
        """Cut a recording of these samples and features."""
        spans = voiced(samples, check) if self.speech_only else (Span(0, frames.shape[1]),)
        return in_windows(frames, spans) if self.in_windows else spans


WHOLE: Final = Cutting()
"""All of the recording in one part."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The features of a file, or of a part of it, `frames` (mels, number of frames) float32, and the seconds of it.

    `spans` are the parts of these frames to transcribe, in order. The part begins at frame `start` of the file. Windows
    are cut into the memory that `allocate` returns, if it is given.
    """

    frames: npt.NDArray[np.float32]
    duration: float
    spans: tuple[Span, ...]
    allocate: _Allocate | None = None
    start: int = 0

    @property
    def end(self) -> float:
        """The second of the file at which this part ends."""
        return self.start / FRAMES_PER_SECOND + self.duration

    @property
    def count(self) -> int:
        """The number of frames."""
        return int(self.frames.shape[1])

    def window(self, start: int, stop: int) -> Mel:
        """Return the window that begins at frame `start`, filled up with zeros from `stop` on if it ends before."""
        content = self.frames[:, start : min(stop, start + FRAMES)]
        count = content.shape[1]
        window = (self.allocate or _in_own_memory)((len(self.frames), FRAMES * _FLOAT_BYTES)).view(np.float32)
        window[:, :count] = content
        window[:, count:] = 0
        return Mel.of(window, count)


def record(
    encoded: bytes,
    limits: AudioLimits,
    geometry: MelGeometry,
    cutting: Cutting = WHOLE,
    *,
    allocate: _Allocate | None = None,
    check: Check = go_on,
) -> Recording:
    """Decode a file and transform it as a whole; raises `AudioTooLarge`, `AudioUndecodable` or the error of `check`."""
    samples = decode(encoded, limits, check)
    count = len(samples) // (SAMPLE_RATE // FRAMES_PER_SECOND)
    # Whisper adds silence before it transforms, so the last frames see it instead of a reflection
    padded = np.concatenate((samples, np.zeros(_SILENCE_AFTER, dtype=np.int16)))
    frames = log_mel(padded, geometry.mels, check)[:, :count]
    return Recording(frames, len(samples) / SAMPLE_RATE, cutting.cut(samples, frames, check), allocate)


def parts(
    encoded: bytes,
    limits: AudioLimits,
    geometry: MelGeometry,
    cutting: Cutting = WHOLE,
    *,
    allocate: _Allocate | None = None,
    check: Check = go_on,
) -> Iterator[Recording]:
    """Yield a file in consecutive parts; raises the errors of `record`.

    A file that is cut into windows comes window by window, before later ones are decoded. The features of a window are
    relative to the loudest frame up to its end. Otherwise the whole file is one part: windows that are not independent
    read the text before theirs, and voices are searched for in the whole file. Decoding, resampling and the features
    of windows have threads of their own.
    """
    if not cutting.in_windows or cutting.speech_only:
        yield record(encoded, limits, geometry, cutting, allocate=allocate, check=check)
        return
    windows = _Windows(geometry.mels, allocate)
    framed = ahead(_framed(encoded, limits, check))
    with closing(side_by_side(lambda piece: (piece[0], logarithms(piece[1], geometry.mels)), framed)) as found:
        for count, frames in found:
            yield from windows.take(count, frames)
    yield windows.last()


def _framed(
    encoded: bytes, limits: AudioLimits, check: Check
) -> Generator[tuple[int, npt.NDArray[np.int16]], None, None]:
    """Yield the number of samples in each piece of a file, and the samples of the frames that the piece completes."""
    stream = FrameStream()
    with closing(decoded(encoded, limits, check)) as pieces:
        for samples in pieces:
            yield len(samples), stream.take(samples)
    yield 0, stream.take(np.zeros(_SILENCE_AFTER, dtype=np.int16))


class _Windows:
    """Cuts windows out of frames that come in pieces."""

    def __init__(self, mels: int, allocate: _Allocate | None) -> None:
        self._allocate = allocate
        self._logarithms = np.empty((mels, 0), dtype=np.float32)
        self._pieces: list[npt.NDArray[np.float32]] = []  # later frames, not joined to these yet
        self._start = 0
        self._samples = 0
        self._loudest = -np.inf

    def take(self, samples: int, frames: npt.NDArray[np.float32]) -> Iterator[Recording]:
        """Yield the windows that these frames of `samples` samples complete; 0 samples end the recording."""
        self._samples += samples
        self._pieces.append(frames)
        while samples and self._logarithms.shape[1] + sum(piece.shape[1] for piece in self._pieces) > FRAMES:
            self._join()
            features = self._features(FRAMES)
            stop = end_of_window(features)
            yield self._part(features[:, :stop].copy(), stop / FRAMES_PER_SECOND)
            self._logarithms = self._logarithms[:, stop:]
            self._start += stop

    def last(self) -> Recording:
        """Return the window that the file ends with; raises `AudioUndecodable` if there were no samples."""
        if not self._samples:
            raise AudioUndecodable("the file has no audio that can be decoded")
        self._join()
        count = self._samples // (SAMPLE_RATE // FRAMES_PER_SECOND) - self._start
        return self._part(self._features(count), self._samples / SAMPLE_RATE - self._start / FRAMES_PER_SECOND)

    def _join(self) -> None:
        self._logarithms = np.concatenate((self._logarithms, *self._pieces), axis=1)
        self._pieces.clear()

    def _features(self, count: int) -> npt.NDArray[np.float32]:
        first = self._logarithms[:, :count]
        self._loudest = max(self._loudest, float(first.max(initial=-np.inf)))
        return normalised(first, self._loudest)

    def _part(self, features: npt.NDArray[np.float32], seconds: float) -> Recording:
        return Recording(features, seconds, (Span(0, features.shape[1]),), self._allocate, self._start)


def recording_bytes(seconds: float, geometry: MelGeometry) -> int:
    """Return the most memory that `record` takes for audio of this length: two copies of the samples, and features."""
    samples = 2 * 2 * SAMPLE_RATE
    features = 4 * FRAMES_PER_SECOND * geometry.mels
    return int(seconds * (samples + features))


def _in_own_memory(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
