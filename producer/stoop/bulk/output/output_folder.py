"""The folder of a run: result shards, the errors file and the index of finished rows.

`run.json` is on disk before the first job is submitted. `flush` hands lines to the kernel within a fifth of a second,
so kill -9 loses no more than those. `sync` writes them to disk every five seconds, when a shard is full and at the end;
only then does the index commit them. A lost line does no harm: its row is not done, so its job is found again in the
queue, or run again if the queue has forgotten it.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from stoop.bulk.arguments import RUN_FILE, settle_arguments, sync_folder
from stoop.bulk.output.archive import Archive
from stoop.bulk.output.index import Extent, Index
from stoop.bulk.output.line import Line, pack_line
from stoop.bulk.output.recovery import ERRORS, count_line, recover, retry_failed, shard_name, shard_number, shards
from stoop.errors import ConfigError

__all__ = ["SHARD_ROWS", "Identity", "Output", "opened"]

SHARD_ROWS: Final = 10_000
_INDEX: Final = ".index.sqlite"
_LOCK: Final = ".lock"
_BUFFER: Final = 1 << 20


class _Writing:
    """Turns a full or missing disk into a `ConfigError` with advice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | sqlite3.Error):
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise ConfigError(f"cannot write to {self._folder}: {why}: fix that, then resume") from error


class _Lines:
    """One file that grows by whole lines."""

    def __init__(self, path: Path, extent: Extent) -> None:
        self.name = path.name
        self.extent = extent
        self._file: BinaryIO = path.open("ab", buffering=_BUFFER)
        sync_folder(path.parent)

    def append(self, packed: bytes) -> None:
        self._file.write(packed)
        self.extent = Extent(self.extent.bytes + len(packed), self.extent.lines + 1)

    def flush(self) -> None:
        self._file.flush()

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class Output:
    """Accepts each row's line once. `run` is the random name of the run. Use `opened` to create one.

    With an `archive`, each of the `full_shards` should be stored there; `drop` then removes it here.
    """

    def __init__(self, folder: Path, run: str, *, shard_rows: int = SHARD_ROWS, archive: Archive | None = None) -> None:
        self.folder = folder
        self.run = run
        self.archive = archive
        self._writing = _Writing(folder)
        self._shard_rows = shard_rows
        self._index = Index(folder / _INDEX)
        try:
            self.totals = recover(folder, self._index, archive)
            extents = self._index.extents()
            self._number = self._last_number()
            self._results = self._open(shard_name(self._number), extents)
            self._errors = self._open(ERRORS, extents)
        except BaseException:
            self._index.close()
            raise

    def lookup(self, name: str) -> tuple[bool, int]:
        """Return whether this row is done, and how many times it has failed."""
        return self._index.lookup(name)

    def put(self, line: Line) -> bool:
        """Write the line of a row that has ended. Return False, and write nothing, if the row was already done."""
        with self._writing:
            # choose the file first, because that may sync, and a sync must not index a row without its line
            lines = self._file_of(line)
            if not self._index.finish(line.row):
                return False
            count_line(self.totals, line)
            lines.append(pack_line(line))
            return True

    def flush(self) -> None:
        """Hand the lines to the kernel, so that they survive this process."""
        with self._writing:
            self._results.flush()
            self._errors.flush()

    def sync(self) -> None:
        """Write the lines to disk, then commit them to the index."""
        with self._writing:
            self._results.sync()
            self._errors.sync()
            self._index.commit({lines.name: lines.extent for lines in (self._results, self._errors)}, self.totals)

    @property
    def full_shards(self) -> list[Path]:
        """The shards in the folder that get no more lines; they are on disk."""
        return [path for path in shards(self.folder) if path.name != self._results.name]

    @property
    def shards(self) -> list[str]:
        """The names of all shards, those in the archive first."""
        here = [path.name for path in shards(self.folder) if path.stat().st_size or self.archive is None]
        return sorted(self._index.archived()) + here if self.archive is not None else here

    def end_shard(self) -> None:
        """End the current shard, which is then full, and begin a new one; does nothing if the current one is empty."""
        with self._writing:
            if not self._results.extent.lines:
                return
            self.sync()
            self._results.close()
            self._number += 1
            self._results = self._open(shard_name(self._number), {})

    def store(self, shard: Path) -> str:
        """Store a full shard in the archive, and return its name there. It blocks, so run it in a thread."""
        assert self.archive is not None
        with self._writing:
            return self.archive.store(shard)

    def drop(self, shard: Path, name: str) -> None:
        """Remove a full shard that the archive keeps under this name."""
        with self._writing:
            self._index.archive(name, shard.name)
            self.sync()  # first, because an indexed file that is gone counts as lost
            shard.unlink()

    def close(self) -> None:
        """Close the files. The next `opened` reads unsynced lines again."""
        with contextlib.ExitStack() as closing:
            for each in (self._index, self._errors, self._results):
                closing.callback(each.close)
        if self.archive is not None and not self._results.extent.lines:
            (self.folder / self._results.name).unlink(missing_ok=True)

    def _last_number(self) -> int:
        """Return the number of the shard that still grows; an archived one grows no more."""
        archived = [shard_number(name) + 1 for name in self._index.archived()]
        return max([*archived, *(shard_number(path.name) for path in shards(self.folder))], default=0)

    def _open(self, name: str, extents: Mapping[str, Extent]) -> _Lines:
        return _Lines(self.folder / name, extents.get(name, Extent()))

    def _file_of(self, line: Line) -> _Lines:
        if line.failure is not None:
            return self._errors
        if self._results.extent.lines >= self._shard_rows:
            self.end_shard()
        return self._results


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts that distinguish one run from another: its source and its arguments."""

    source: Mapping[str, Any]
    asked: Mapping[str, Any]


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Create the folder if it is missing, check that it is writable, and lock other processes out."""
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((folder / _LOCK).open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another stoop bulk is writing to {folder}: wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise ConfigError(f"cannot write to {folder}: {error.strerror or error}") from error
        yield


@contextlib.contextmanager
def opened(
    folder: Path,
    identity: Identity,
    *,
    again: bool = False,
    shard_rows: int = SHARD_ROWS,
    archive: Archive | None = None,
) -> Iterator[Output]:
    """Open the folder of a new or resumed run; with `again`, retry the failed rows.

    Raises `ConfigError` if the folder is not writable, another process uses it, or it or the archive holds another run.
    """
    with _claimed(folder):
        if archive is not None and not (folder / RUN_FILE).exists() and archive.names():
            raise ConfigError(f"{archive.place} has shards of another run: choose another place, or resume that run")
        with _Writing(folder):
            arguments = settle_arguments(folder, identity.source, identity.asked)
            if again:
                retry_failed(folder)
            output = Output(folder, arguments.run, shard_rows=shard_rows, archive=archive)
        try:
            yield output
            output.sync()
        finally:
            with contextlib.suppress(OSError, sqlite3.Error):
                output.close()
