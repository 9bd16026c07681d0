"""A decoded file as features, from which windows are cut."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, decode
from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND, Mel, MelGeometry, log_mel

__all__ = ["Recording", "record", "recording_bytes"]

_Allocate = Callable[[tuple[int, ...]], npt.NDArray[np.uint8]]
"""Returns an array of bytes of the given shape, which the caller fills."""

_FLOAT_BYTES: Final = 4
_SILENCE_AFTER: Final = 480
"""Samples of silence after the end: the last frames look 200 samples beyond it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The features of a whole file, `frames` (mels, number of frames) float32, and its `duration` in seconds.

    Windows are cut into the memory that `allocate` returns, if it is given.
    """

    frames: npt.NDArray[np.float32]
    duration: float
    allocate: _Allocate | None = None

    @property
    def count(self) -> int:
        """The number of frames."""
        return int(self.frames.shape[1])

    def window(self, start: int) -> Mel:
        """Return the window that begins at frame `start`, filled up with zeros after the end of the audio."""
        content = self.frames[:, start : start + FRAMES]
        count = content.shape[1]
        window = (self.allocate or _in_own_memory)((len(self.frames), FRAMES * _FLOAT_BYTES)).view(np.float32)
        window[:, :count] = content
        window[:, count:] = 0
        return Mel.of(window, count)


def record(encoded: bytes, limits: AudioLimits, geometry: MelGeometry, allocate: _Allocate | None = None) -> Recording:
    """Decode a file and transform it as a whole; raises `AudioTooLarge` or `AudioUndecodable`."""
    samples = decode(encoded, limits)
    count = len(samples) // (SAMPLE_RATE // FRAMES_PER_SECOND)
    # Whisper adds silence before it transforms, so the last frames see it instead of a reflection
    padded = np.concatenate((samples, np.zeros(_SILENCE_AFTER, dtype=np.int16)))
    return Recording(log_mel(padded, geometry.mels)[:, :count], len(samples) / SAMPLE_RATE, allocate)


def recording_bytes(seconds: float, geometry: MelGeometry) -> int:
    """Return the most memory that `record` takes for audio of this length: two copies of the samples, and features."""
    samples = 2 * 2 * SAMPLE_RATE
    features = 4 * FRAMES_PER_SECOND * geometry.mels
    return int(seconds * (samples + features))


def _in_own_memory(shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.empty(shape, dtype=np.uint8)
