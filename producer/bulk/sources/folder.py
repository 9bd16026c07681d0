"""The images under a local folder."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from producer.bulk.row import Row
from producer.bulk.sources.source import is_image
from producer.errors import ConfigError

__all__ = ["Folder"]


@dataclass(frozen=True, slots=True)
class Folder:
    """Every image under `root`, by its path from there; `match` is a pattern for that path.

    Hidden files and folders are passed over, and links to folders are not followed.
    """

    root: Path
    match: str | None = None

    @property
    def facts(self) -> dict[str, str | None]:
        """Where the folder is; images may be added to it between sessions."""
        return {"source": str(self.root.resolve()), "match": self.match}

    def rows(self) -> Iterator[Row]:
        """Walk the folder in the order of the file system, which needs no memory however many files it has."""
        yield from self._walk(self.root, "")

    def count(self) -> int:
        """Count the images."""
        return sum(1 for _ in self.rows())

    def _walk(self, folder: Path, stem: str) -> Iterator[Row]:
        inner: list[tuple[Path, str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    name = stem + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        inner.append((folder / entry.name, name + "/"))
                    elif is_image(name, self.match) and entry.is_file():
                        yield _row(entry, name)
        except OSError as error:
            raise ConfigError(f"cannot read the folder {folder}: {error.strerror or error}") from error
        for path, deeper in sorted(inner):
            yield from self._walk(path, deeper)


def _row(entry: "os.DirEntry[str]", name: str) -> Row:
    try:
        size = entry.stat().st_size
    except OSError:  # it has gone: whoever uploads it will say so
        size = None
    # a name in another encoding than UTF-8 is still a name
    return Row(name.encode("utf-8", "backslashreplace").decode(), image=Path(entry.path), bytes=size)
