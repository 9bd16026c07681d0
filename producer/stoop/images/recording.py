"""The forms of a recording that a caller may pass, and the bytes that are uploaded, which are the file's own."""

import hashlib
import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from stoop.errors import AudioUnreadable, ImageUnreadable
from stoop.images.local_file import path_of, read_file
from stoop.images.source import inline

__all__ = ["AudioSource", "LoadedAudio", "load_audio"]

AudioSource: TypeAlias = "str | Path | bytes"
"""An `s3://`, `data:` or `https://` address, a path, or the bytes of an audio file."""

_MOST_BYTES: Final = 1 << 30
_SUFFIX: Final = re.compile(r"\.([A-Za-z0-9]{1,8})")


@dataclass(frozen=True, slots=True)
class LoadedAudio:
    """The bytes of an audio file; `suffix` and `media_type` are guessed from its name."""

    encoded: bytes
    suffix: str
    media_type: str

    @property
    def digest(self) -> str:
        """The SHA-256 of the bytes."""
        return hashlib.sha256(self.encoded).hexdigest()


def load_audio(audio: object) -> LoadedAudio:
    """Return the bytes of a path, a `data:` address or a buffer. Raises `AudioUnreadable`."""
    if isinstance(audio, bytes | bytearray | memoryview):
        return LoadedAudio(bytes(audio), "bin", "application/octet-stream")
    if isinstance(audio, str) and audio.startswith("data:"):
        return LoadedAudio(_inline(audio), "bin", audio[5:].partition(";")[0] or "application/octet-stream")
    if isinstance(audio, str | Path):
        path = path_of(audio, AudioUnreadable)
        suffix = _SUFFIX.fullmatch(path.suffix)
        guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return LoadedAudio(_read(path), suffix[1].lower() if suffix else "bin", guessed)
    raise AudioUnreadable(f"{type(audio).__name__} is not a recording: give an address, a path or bytes")


def _inline(address: str) -> bytes:
    try:
        return inline(address)
    except ImageUnreadable as error:
        raise AudioUnreadable(str(error)) from None


def _read(path: Path) -> bytes:
    return read_file(path, AudioUnreadable, _MOST_BYTES, wanted="one audio file", smaller="a shorter audio file")
