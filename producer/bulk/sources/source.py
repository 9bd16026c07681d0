"""What every source of rows can do."""

import hashlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Protocol

from producer.bulk.row import Row
from producer.errors import ConfigError
from producer.image_source import is_address
from schemas.failure import FailureCode, Rejected

__all__ = ["Source", "file_facts", "image_at", "is_image"]

_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_SAMPLE: Final = 1 << 16


class Source(Protocol):
    """Rows, read one after the other and never held all at once. Its methods block."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What tells the source from another, as JSON has it; `content` if it must not change between sessions."""

    def rows(self) -> Iterator[Row]:
        """Read every row anew. Raises a `StoopError` if the source cannot be read (any more)."""

    def count(self) -> int:
        """Count the rows, which may take a while."""


def is_image(name: str, match: str | None) -> bool:
    """Say whether a file of this name is wanted: it fits the pattern or, without one, its suffix is an image's."""
    return fnmatchcase(name, match) if match else name.lower().endswith(_SUFFIXES)


def image_at(image: str, folder: Path) -> str | Path:
    """Return an address as it is, and a path as one from `folder` on; raises `Rejected` for what no path can be."""
    if "\0" in image:
        raise Rejected(FailureCode.MALFORMED, "the image is neither an address nor a path")
    return image if is_address(image) else folder / image


def file_facts(path: Path) -> dict[str, Any]:
    """Return the facts of a file: where it is, and a digest of its size and of its two ends."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"{size}:".encode() + file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    return {"source": str(path.resolve()), "content": digest.hexdigest()}
