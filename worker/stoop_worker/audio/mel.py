"""Log-mel features as Whisper takes them, and one window of them.

The steps are those of the Whisper paper (Radford et al., 2022, https://arxiv.org/abs/2212.04356) and its code: frames
of 25 ms every 10 ms, a periodic Hann window, the power spectrum, Slaney's mel filters from 0 to 8 kHz, and the upper 8
decades of a logarithm.
"""

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stoop_worker.audio.decode import Check, go_on

__all__ = [
    "FRAMES",
    "FRAMES_PER_SECOND",
    "FrameStream",
    "Mel",
    "MelGeometry",
    "Samples",
    "log_mel",
    "logarithms",
    "normalised",
]

Samples = npt.NDArray[np.int16] | npt.NDArray[np.float32]
"""Mono samples at 16 kHz: int16, or float32 from -1 to 1."""

FRAMES_PER_SECOND: Final = 100
"""Frames of features in a second of audio."""

FRAMES: Final = 3000
"""The frames of a window of 30 seconds, 10 ms each."""

_RATE: Final = 16_000
_FFT: Final = 400
_HOP: Final = _RATE // FRAMES_PER_SECOND
_HALF: Final = _FFT // 2
_CHUNK: Final = 4096  # frames transformed at once; 7 MB of samples
_LEAST: Final = np.float32(1e-10)
_DECADES: Final = np.float32(8)

# Slaney's scale: linear below 1 kHz, then a constant ratio from one mel to the next
_HERTZ_PER_MEL: Final = 200 / 3
_LINEAR_HERTZ: Final = 1000.0
_LINEAR_MELS: Final = _LINEAR_HERTZ / _HERTZ_PER_MEL
_LOG_STEP: Final = math.log(6.4) / 27


@dataclass(frozen=True, slots=True)
class MelGeometry:
    """The number of mel bands that a model reads: 80, or 128 from large-v3 on."""

    mels: int


@dataclass(frozen=True, slots=True)
class Mel:
    """The normalised log-mel frames of one window, (mels, 3000) float32, with a digest that identifies them.

    The first `content` frames are audio; the rest are 0.
    """

    frames: npt.NDArray[np.float32]
    digest: bytes
    content: int = FRAMES

    @classmethod
    def of(cls, frames: npt.NDArray[np.float32], content: int = FRAMES) -> "Mel":
        """Wrap frames (mels, 3000) float32; the digest covers their values and shape."""
        frames = np.ascontiguousarray(frames, dtype=np.float32)
        digest = hashlib.blake2b(repr((frames.shape, content)).encode(), digest_size=16)
        digest.update(frames.data)
        return cls(frames=frames, digest=digest.digest(), content=content)


def log_mel(samples: Samples, mels: int, check: Check = go_on) -> npt.NDArray[np.float32]:
    """Return the features of mono samples at 16 kHz, (mels, number of samples // 160) float32.

    Values are relative to the loudest of all frames, so a file is transformed as a whole. Both ends are reflected, as
    in a centred short-time Fourier transform; the samples must be more than 200.
    """
    count = len(samples) // _HOP
    features = np.empty((mels, count), dtype=np.float32)
    for start in range(0, count, _CHUNK):
        check()
        stop = min(count, start + _CHUNK)
        features[:, start:stop] = _logarithms(_piece(samples, start, stop), mels).T
    return normalised(features, features.max(initial=-np.inf), out=features)


def normalised(
    logarithms: npt.NDArray[np.float32], loudest: float, out: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Return the features of the logarithms, clamped to 8 decades below `loudest`."""
    features: npt.NDArray[np.float32] = np.maximum(logarithms, np.float32(loudest) - _DECADES, out=out)
    features += np.float32(4)
    features /= np.float32(4)
    return features


class FrameStream:
    """Cuts samples that come in pieces into whole frames; the beginning of a recording is reflected."""

    def __init__(self) -> None:
        self._samples = np.zeros(0, dtype=np.int16)
        self._began = False

    def take(self, samples: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """Return the samples of the frames that these samples complete, for `logarithms`."""
        self._samples = np.concatenate((self._samples, samples))
        if not self._began:
            if len(self._samples) <= _HALF:
                return self._samples[:0]
            self._samples = np.pad(self._samples, (_HALF, 0), mode="reflect")
            self._began = True
        count = max(0, (len(self._samples) - _FFT) // _HOP + 1)
        piece, self._samples = self._samples[: (count - 1) * _HOP + _FFT], self._samples[count * _HOP :]
        return piece if count else piece[:0]


def logarithms(samples: npt.NDArray[np.int16], mels: int) -> npt.NDArray[np.float32]:
    """Return the logarithms of the mel energies of a `FrameStream`'s frames, (mels, number of frames).

    They equal those in `log_mel`.
    """
    if not len(samples):
        return np.empty((mels, 0), dtype=np.float32)
    return np.ascontiguousarray(_logarithms(_scaled(samples), mels).T)


def _piece(samples: Samples, start: int, stop: int) -> npt.NDArray[np.float32]:
    """Return the samples under frames [start, stop), reflected where they reach over an end."""
    low, high = start * _HOP - _HALF, (stop - 1) * _HOP + _HALF
    scaled = _scaled(samples[max(0, low) : high])
    before, after = max(0, -low), max(0, high - len(samples))
    return np.pad(scaled, (before, after), mode="reflect") if before or after else scaled


def _scaled(samples: Samples) -> npt.NDArray[np.float32]:
    floats = samples.astype(np.float32)
    return floats / np.float32(32768) if samples.dtype == np.int16 else floats


def _logarithms(piece: npt.NDArray[np.float32], mels: int) -> npt.NDArray[np.float32]:
    """Return the logarithms of the energies of each frame, (frames, mels)."""
    found: npt.NDArray[np.float32] = np.log10(np.maximum(_power(piece) @ _filters(mels), _LEAST))
    return found


def _power(piece: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the power spectrum of each frame, (frames, 201)."""
    frames = np.lib.stride_tricks.sliding_window_view(piece, _FFT)[::_HOP]
    spectrum = np.fft.rfft(frames * _hann())
    return (spectrum.real**2 + spectrum.imag**2).astype(np.float32)


@functools.cache
def _hann() -> npt.NDArray[np.float32]:
    return np.hanning(_FFT + 1)[:-1].astype(np.float32)


@functools.cache
def _filters(mels: int) -> npt.NDArray[np.float32]:
    """Return Slaney's triangles of unit area, (201, mels)."""
    edges = _hertz(np.linspace(0, _mel(_RATE / 2), mels + 2))
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    bins = np.linspace(0, _RATE / 2, _HALF + 1)[:, None]
    rising, falling = (bins - low) / (centre - low), (high - bins) / (high - centre)
    triangles = np.maximum(0, np.minimum(rising, falling)) * (2 / (high - low))
    return triangles.astype(np.float32)


def _mel(hertz: float) -> float:
    """Return the place on Slaney's scale of a frequency above 1 kHz."""
    return _LINEAR_MELS + math.log(hertz / _LINEAR_HERTZ) / _LOG_STEP


def _hertz(mel: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(mel < _LINEAR_MELS, mel * _HERTZ_PER_MEL, _LINEAR_HERTZ * np.exp(_LOG_STEP * (mel - _LINEAR_MELS)))
