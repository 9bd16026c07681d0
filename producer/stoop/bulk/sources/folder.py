"""The images under a local folder."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoop.bulk.row import Row
from stoop.bulk.sources.source import SUFFIXES, is_wanted
from stoop.errors import ConfigError
from stoop_schemas.failure import Failure, FailureCode

__all__ = ["Folder"]


@dataclass(frozen=True, slots=True)
class Folder:
    """Every image under `root`, named by its path relative to `root`; `match` is a pattern for that path, without which
    the `suffixes` decide.

    Hidden files and folders are skipped, and links to folders are not followed. A folder below `root` that cannot
    be read is a row with a problem, named by its path and a slash.
    """

    root: Path
    match: str | None = None
    suffixes: tuple[str, ...] = SUFFIXES

    @property
    def facts(self) -> dict[str, str | None]:
        """The folder's path; images may be added to it between sessions."""
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
                    elif is_wanted(name, self.match, self.suffixes) and entry.is_file():
                        yield _row(entry, name)
        except OSError as error:
            problem = f"cannot read the folder {folder}: {error.strerror or error}"
            if not stem:
                raise ConfigError(problem) from error
            yield Row(_shown(stem), problem=Failure.of(FailureCode.IMAGE_FORBIDDEN, problem))
        for path, deeper in sorted(inner):
            yield from self._walk(path, deeper)


def _row(entry: "os.DirEntry[str]", name: str) -> Row:
    try:
        size = entry.stat().st_size
    except OSError:  # the file is gone; the upload will report it
        size = None
    return Row(_shown(name), image=Path(entry.path), bytes=size)


def _shown(name: str) -> str:
    """Return the name as text, even if it is not in UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()
