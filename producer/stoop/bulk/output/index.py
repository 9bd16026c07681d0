"""The index of finished rows: an SQLite file beside the results, rebuilt from them if it is lost.

It never runs ahead of the results, because lines are synced to disk before the index commits them. It keeps each row as
a digest of 16 bytes, on disk and not in memory.
"""

import contextlib
import hashlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Extent", "Index", "Totals"]

_VERSION: Final = 2
_TABLES: Final = """
    CREATE TABLE rows (digest BLOB PRIMARY KEY, done INTEGER NOT NULL, failures INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE files (name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, lines INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE totals (one INTEGER PRIMARY KEY, completed INTEGER, failed INTEGER, input_tokens INTEGER,
        output_tokens INTEGER, seconds REAL, at REAL);
    CREATE TABLE archived (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_SIDES: Final = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Extent:
    """The length of a file that is complete and indexed."""

    bytes: int = 0
    lines: int = 0


@dataclass(slots=True)
class Totals:
    """Totals over all sessions of a run; `seconds` is their combined time."""

    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    @property
    def ended(self) -> int:
        """Rows that have an answer or a failure."""
        return self.completed + self.failed


class Index:
    """Remembers finished rows from one `commit` to the next. Opens the file, or creates it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def lookup(self, name: str) -> tuple[bool, int]:
        """Return whether this row is done, and how many times it has failed."""
        found = self._file.execute("SELECT done, failures FROM rows WHERE digest = ?", [_digest(name)]).fetchone()
        return (bool(found[0]), found[1]) if found else (False, 0)

    def finish(self, name: str) -> bool:
        """Mark the row as done. Return False if it already was."""
        put = "INSERT INTO rows VALUES (?, 1, 0) ON CONFLICT DO UPDATE SET done = 1 WHERE done = 0"
        return self._file.execute(put, [_digest(name)]).rowcount > 0

    def retry(self, name: str) -> None:
        """Record that the row failed and needs another try."""
        put = "INSERT INTO rows VALUES (?, 0, 1) ON CONFLICT DO UPDATE SET failures = failures + 1"
        self._file.execute(put, [_digest(name)])

    def extents(self) -> dict[str, Extent]:
        """Return the indexed length of each file."""
        return {name: Extent(size, lines) for name, size, lines in self._file.execute("SELECT * FROM files")}

    def archived(self) -> set[str]:
        """Return the names in the archive of the files whose rows are indexed."""
        return {name for (name,) in self._file.execute("SELECT name FROM archived")}

    def archive(self, name: str, file: str | None = None) -> None:
        """Record that the rows of `file` are in the archive under `name`; takes effect with the next `commit`."""
        self._file.execute("DELETE FROM files WHERE name = ?", [file])
        self._file.execute("INSERT OR REPLACE INTO archived VALUES (?)", [name])

    def totals(self) -> Totals:
        """Return the totals of the last commit."""
        found = self._file.execute(
            "SELECT completed, failed, input_tokens, output_tokens, seconds FROM totals"
        ).fetchone()
        return Totals(*found) if found else Totals()

    def committed_at(self) -> float:
        """Return the time of the last commit in Unix seconds, or now for a new index."""
        found = self._file.execute("SELECT at FROM totals").fetchone()
        return float(found[0]) if found else time.time()

    def commit(self, extents: dict[str, Extent], totals: Totals) -> None:
        """Commit all changes since the last time. Sync the files to disk first, at least as far as `extents`."""
        rows = [(name, extent.bytes, extent.lines) for name, extent in extents.items()]
        self._file.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)
        counts = (totals.completed, totals.failed, totals.input_tokens, totals.output_tokens)
        values = (*counts, totals.seconds, time.time())
        self._file.execute("INSERT OR REPLACE INTO totals VALUES (1, ?, ?, ?, ?, ?, ?)", values)
        self._file.execute("COMMIT")
        self._file.execute("BEGIN")

    def clear(self) -> None:
        """Forget everything."""
        self.close()
        self._remove()
        self._open()

    def close(self) -> None:
        """Close the file. Uncommitted rows are read from the results again at the next start."""
        self._file.close()

    def _open(self) -> None:
        try:
            self._connect()
        except (sqlite3.DatabaseError, _Foreign):
            self._remove()
            self._connect()

    def _connect(self) -> None:
        self._file = sqlite3.connect(self._path, isolation_level=None)
        try:
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            [version] = self._file.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._file.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT")
            elif version != _VERSION:
                raise _Foreign
            self.extents(), self.totals()  # fails here if the file is not an index
            self._file.execute("BEGIN")
        except BaseException:
            self._file.close()
            raise

    def _remove(self) -> None:
        for side in _SIDES:
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + side).unlink()


class _Foreign(Exception):
    """The file has the layout of another version."""


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=16).digest()
