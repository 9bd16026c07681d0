"""The interface of every source of rows."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Protocol

from stoop.bulk.row import Row
from stoop.errors import ConfigError
from stoop.images.source import is_address
from stoop_schemas.failure import FailureCode, Rejected

__all__ = ["AUDIO_SUFFIXES", "SUFFIXES", "Source", "file_facts", "image_at", "is_wanted"]

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
AUDIO_SUFFIXES: Final = (
    *(".aac", ".aif", ".aiff", ".amr", ".caf", ".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg"),
    *(".opus", ".wav", ".webm", ".wma"),
)
_SAMPLE: Final = 1 << 16
_WHOLE: Final = 1 << 30  # bytes: a second or two to read


class Source(Protocol):
    """Yields rows one by one, and never holds all of them. Its methods block."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts that identify the source, as JSON values; `content` if it must not change between sessions."""

    def rows(self) -> Iterator[Row]:
        """Read all rows. Raises a `StoopError` if the source cannot be read, or stops being readable."""

    def count(self) -> int:
        """Count the rows, which may take a while."""


def is_wanted(name: str, match: str | None, suffixes: tuple[str, ...]) -> bool:
    """Return whether the name matches the pattern or, without a pattern, has one of the suffixes."""
    return fnmatchcase(name, match) if match else name.lower().endswith(suffixes)


def image_at(image: str, folder: Path) -> str | Path:
    """Return an address unchanged, and a path relative to `folder`; raises `Rejected` for an impossible path."""
    if "\0" in image:
        raise Rejected(FailureCode.MALFORMED, "the image is neither an address nor a path")
    return image if is_address(image) else folder / image


def file_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a file: its path and a digest.

    A file of more than a gigabyte takes long to read. Its digest covers only its size and its two ends, and its facts
    include the time it was `modified`, in nanoseconds.
    """
    facts: dict[str, Any] = {"source": str(path.resolve())}
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size <= _WHOLE:
                return facts | {"content": hashlib.file_digest(file, "blake2b").hexdigest()[:32]}
            digest = hashlib.blake2b(f"{status.st_size}:".encode() + file.read(_SAMPLE), digest_size=16)
            file.seek(status.st_size - _SAMPLE)
            digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    return facts | {"content": digest.hexdigest(), "modified": status.st_mtime_ns}
