"""The place to which the full shards of a run move, if they do not stay JSON lines in its folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

__all__ = ["Archive"]


class Archive(Protocol):
    """Keeps each shard once, under a name with the shard's number. Its methods block.

    They raise `UploadFailed` if the place cannot be reached for now, and `ConfigError` or `OSError` if it cannot be
    used.
    """

    @property
    def place(self) -> str:
        """The folder or the address, for messages."""

    def names(self) -> list[str]:
        """Return the names of all shards that are kept."""

    def rows(self, name: str) -> Iterator[str]:
        """Read the names of the rows of a shard."""

    def store(self, shard: Path) -> str:
        """Keep a file of lines, durably, and return its name here. The same file replaces its earlier version."""
