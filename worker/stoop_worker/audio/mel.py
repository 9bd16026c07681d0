"""The log-mel frames of one window of 30 seconds, as Whisper reads them."""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["FRAMES", "Mel", "MelGeometry"]

FRAMES = 3000
"""The frames of a window, 10 ms each."""


@dataclass(frozen=True, slots=True)
class MelGeometry:
    """The number of mel bands that a model reads: 80, or 128 from large-v3 on."""

    mels: int


@dataclass(frozen=True, slots=True)
class Mel:
    """The normalised log-mel frames of one window, (mels, 3000) float32, with a digest that identifies them."""

    frames: npt.NDArray[np.float32]
    digest: bytes

    @classmethod
    def of(cls, frames: npt.NDArray[np.float32]) -> "Mel":
        """Wrap frames (mels, 3000) float32; the digest covers their values and shape."""
        frames = np.ascontiguousarray(frames, dtype=np.float32)
        digest = hashlib.blake2b(repr(frames.shape).encode(), digest_size=16)
        digest.update(frames.data)
        return cls(frames=frames, digest=digest.digest())
