"""Speech by espeak-ng (GPL-3.0), through its C library; only the training needs it.

    apt-get install espeak-ng

The calls are those of its header `speak_lib.h`.
"""

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["RATE", "Speech", "Voices"]

RATE = 16_000
"""Samples per second of the speech."""

_SPOKEN_RATE = 22_050
_SYNCHRONOUS, _UTF8 = 2, 1
_SPEED, _PITCH, _RANGE = 1, 3, 4
_WORD = 1
_QUIET = 300  # of 32768


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # milliseconds
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True, slots=True)
class Speech:
    """Mono `samples` at 16 kHz without silence around them, and where each word begins, in samples.

    A start belongs to the text from a character on; both are sorted.
    """

    samples: npt.NDArray[np.float32]
    starts: tuple[tuple[int, int], ...]


class Voices:
    """The library; there can be one at a time."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("espeak-ng")
        if name is None:
            raise SystemExit("espeak-ng is missing: apt-get install espeak-ng")
        self._library = ctypes.CDLL(name)
        if self._library.espeak_Initialize(_SYNCHRONOUS, 0, None, 0) != _SPOKEN_RATE:
            raise SystemExit("espeak-ng does not start, or speaks at another rate")
        self._pieces: list[npt.NDArray[np.int16]] = []
        self._events: list[tuple[int, int]] = []
        self._callback: Callable[..., Any] = _Callback(self._take)  # kept, because the library calls it
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, voice: str, *, speed: int, pitch: int, tone: int) -> Speech:
        """Speak a text: `speed` in words per minute, `pitch` and its range `tone` from 0 to 99."""
        if self._library.espeak_SetVoiceByName(voice.encode()):
            raise ValueError(f"espeak-ng has no voice {voice!r}")
        for parameter, value in ((_SPEED, speed), (_PITCH, pitch), (_RANGE, tone)):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._pieces, self._events = [], []
        encoded = text.encode()
        self._library.espeak_Synth(encoded, len(encoded) + 1, 0, 1, 0, _UTF8, None, None)
        spoken = np.concatenate(self._pieces)
        loud = np.flatnonzero(np.abs(spoken) > _QUIET)
        first, last = max(0, int(loud[0]) - 200), min(len(spoken), int(loud[-1]) + 600)
        scale = RATE / _SPOKEN_RATE
        size = round((last - first) * scale)
        starts = [
            (at, min(size - 1, max(0, round((when * _SPOKEN_RATE / 1000 - first) * scale))))
            for at, when in self._events
        ]
        return Speech(_resampled(spoken[first:last].astype(np.float32) / 32768, size), tuple(starts))

    def _take(self, samples: Any, count: int, events: Any) -> int:
        if samples and count:
            self._pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while events[number].type:
            if events[number].type == _WORD:
                self._events.append((events[number].text_position - 1, events[number].audio_position))
            number += 1
        return 0


def _resampled(samples: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.float32]:
    """Return as many samples of the same duration, by their spectrum."""
    padded = np.pad(samples, (0, len(samples) // 10 + 441))
    spectrum = np.fft.rfft(padded)
    long = round(len(padded) * RATE / _SPOKEN_RATE)
    resampled = np.fft.irfft(spectrum[: long // 2 + 1], long) * (long / len(padded))
    return resampled[:size].astype(np.float32)
