"""A decoded file as features, from which windows are cut."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.decode import SAMPLE_RATE, AudioLimits, decode
from stoop_worker.audio.mel import FRAMES, FRAMES_PER_SECOND, Mel, MelGeometry, log_mel

__all__ = ["Recording", "record", "recording_bytes"]

_SILENCE_AFTER: Final = 480
"""Samples of silence after the end: the last frames look 200 samples beyond it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The features of a whole file, `frames` (mels, number of frames) float32, and its `duration` in seconds."""

    frames: npt.NDArray[np.float32]
    duration: float

    @property
    def count(self) -> int:
        """The number of frames."""
        return int(self.frames.shape[1])

    def window(self, start: int) -> Mel:
        """Return the window that begins at frame `start`, filled up with zeros after the end of the audio."""
        content = self.frames[:, start : start + FRAMES]
        if content.shape[1] == FRAMES:
            return Mel.of(content)
        window = np.zeros((len(self.frames), FRAMES), dtype=np.float32)
        window[:, : content.shape[1]] = content
        return Mel.of(window, content.shape[1])


def record(encoded: bytes, limits: AudioLimits, geometry: MelGeometry) -> Recording:
    """Decode a file and transform it as a whole; raises `AudioTooLarge` or `AudioUndecodable`."""
    samples = decode(encoded, limits)
    count = len(samples) // (SAMPLE_RATE // FRAMES_PER_SECOND)
    # Whisper adds silence before it transforms, so the last frames see it instead of a reflection
    padded = np.concatenate((samples, np.zeros(_SILENCE_AFTER, dtype=np.int16)))
    return Recording(log_mel(padded, geometry.mels)[:, :count], len(samples) / SAMPLE_RATE)


def recording_bytes(seconds: float, geometry: MelGeometry) -> int:
    """Return the most memory that `record` takes for audio of this length: two copies of the samples, and features."""
    samples = 2 * 2 * SAMPLE_RATE
    features = 4 * FRAMES_PER_SECOND * geometry.mels
    return int(seconds * (samples + features))
