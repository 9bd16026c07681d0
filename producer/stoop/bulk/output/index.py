"""Which rows are done: an SQLite file beside the results, made of them, and made anew from them when it is lost.

It is never ahead of the results: they are on the disk before what was read of them is committed here. Rows are kept as
digests of 16 bytes, on the disk and not in memory.
"""

import contextlib
import hashlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Index", "Mark", "Totals"]

_VERSION: Final = 1
_TABLES: Final = """
    CREATE TABLE rows (digest BLOB PRIMARY KEY, done INTEGER NOT NULL, failures INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE files (name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, lines INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE totals (one INTEGER PRIMARY KEY, completed INTEGER, failed INTEGER, input_tokens INTEGER,
        output_tokens INTEGER, seconds REAL, at REAL);
"""
_SIDES: Final = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file is known to be whole and is indexed."""

    bytes: int = 0
    lines: int = 0


@dataclass(slots=True)
class Totals:
    """What all sessions of a run did together; `seconds` is the time they took."""

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
    """Says what is done, and remembers it from `commit` to `commit`. Opens the file, or makes a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def lookup(self, name: str) -> tuple[bool, int]:
        """Say whether the row of this name is done, and how often it failed before it was to be tried again."""
        found = self._file.execute("SELECT done, failures FROM rows WHERE digest = ?", [_digest(name)]).fetchone()
        return (bool(found[0]), found[1]) if found else (False, 0)

    def finish(self, name: str) -> bool:
        """Note that the row is done; False if it was already."""
        put = "INSERT INTO rows VALUES (?, 1, 0) ON CONFLICT DO UPDATE SET done = 1 WHERE done = 0"
        return self._file.execute(put, [_digest(name)]).rowcount > 0

    def retry(self, name: str) -> None:
        """Note that the row failed, and is to be tried again."""
        put = "INSERT INTO rows VALUES (?, 0, 1) ON CONFLICT DO UPDATE SET failures = failures + 1"
        self._file.execute(put, [_digest(name)])

    def marks(self) -> dict[str, Mark]:
        """Return how far each file is indexed."""
        return {name: Mark(size, lines) for name, size, lines in self._file.execute("SELECT * FROM files")}

    def totals(self) -> Totals:
        """Return the totals of the last commit."""
        found = self._file.execute(
            "SELECT completed, failed, input_tokens, output_tokens, seconds FROM totals"
        ).fetchone()
        return Totals(*found) if found else Totals()

    def committed_at(self) -> float:
        """Return when the last commit was, in Unix seconds; of a new index, now."""
        found = self._file.execute("SELECT at FROM totals").fetchone()
        return float(found[0]) if found else time.time()

    def commit(self, marks: dict[str, Mark], totals: Totals) -> None:
        """Keep what was noted since the last time. Call it when the files are on the disk as far as `marks` say."""
        rows = [(name, mark.bytes, mark.lines) for name, mark in marks.items()]
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
        """Close the file; what was noted since the last commit is read from the results again."""
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
            self.marks(), self.totals()  # a file that is no index is found out here
            self._file.execute("BEGIN")
        except BaseException:
            self._file.close()
            raise

    def _remove(self) -> None:
        for side in _SIDES:
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + side).unlink()


class _Foreign(Exception):
    """The file is of another version."""


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode("utf-8", "backslashreplace"), digest_size=16).digest()
