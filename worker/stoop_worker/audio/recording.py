"""A decoded file as features, from which windows are cut."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, Check, decode, go_on
from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND, Mel, MelGeometry, log_mel
from stoop_worker.audio.span import Span, in_windows
from stoop_worker.audio.voice import voiced

__all__ = ["WHOLE", "Cutting", "Recording", "record", "recording_bytes"]

_Allocate = Callable[[tuple[int, ...]], npt.NDArray[np.uint8]]
"""Returns an array of bytes of the given shape, which the caller fills."""

_FLOAT_BYTES: Final = 4
_SILENCE_AFTER: Final = 480
"""Samples of silence after the end: the last frames look 200 samples beyond it."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """The parts of a recording to hear.

    With `speech_only`, parts without speech are left out. With `in_windows`, no part is longer than a window, and each
    begins and ends where it is quiet, so that all can be heard at the same time.
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
    """The features of a whole file, `frames` (mels, number of frames) float32, and its `duration` in seconds.

    `spans` are its parts to hear, in order. Windows are cut into the memory that `allocate` returns, if it is given.
    """

    frames: npt.NDArray[np.float32]
    duration: float
    spans: tuple[Span, ...]
    allocate: _Allocate | None = None

    @property
    def count(self) -> int:
        """The number of frames."""
        return int(self.frames.shape[1])

    def window(self, start: int, stop: int) -> Mel:
        """Return the window that begins at frame `start`, filled up with zeros from `stop` on if it is that short."""
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
    """Decode a file and transform it as a whole; raises `AudioTooLarge`, `AudioUndecodable` or what `check` raises."""
    samples = decode(encoded, limits, check)
    count = len(samples) // (SAMPLE_RATE // FRAMES_PER_SECOND)
    # Whisper adds silence before it transforms, so the last frames see it instead of a reflection
    padded = np.concatenate((samples, np.zeros(_SILENCE_AFTER, dtype=np.int16)))
    frames = log_mel(padded, geometry.mels, check)[:, :count]
    return Recording(frames, len(samples) / SAMPLE_RATE, cutting.cut(samples, frames, check), allocate)


def recording_bytes(seconds: float, geometry: MelGeometry) -> int:
    """Return the most memory that `record` takes for audio of this length: two copies of the samples, and features."""
    samples = 2 * 2 * SAMPLE_RATE
    features = 4 * FRAMES_PER_SECOND * geometry.mels
    return int(seconds * (samples + features))


def _in_own_memory(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
