"""Recovers the files of an earlier session: cuts off torn ends, and brings the index up to date."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stoop.bulk.arguments import sync_folder
from stoop.bulk.output.archive import Archive
from stoop.bulk.output.index import Extent, Index, Totals
from stoop.bulk.output.line import Line, unpack_line
from stoop.errors import ConfigError

__all__ = ["ERRORS", "count_line", "recover", "retry_failed", "shard_name", "shard_number", "shards"]

ERRORS: Final = "errors.jsonl"
_MOST_LOST_SECONDS: Final = 60.0
_RETRIED: Final = "errors.retried-*.jsonl"


def shard_name(number: int) -> str:
    """Name a shard of the results."""
    return f"results-{number:05}.jsonl"


def shards(folder: Path) -> list[Path]:
    """Return the existing shards, in order."""
    return sorted(folder.glob("results-[0-9]*.jsonl"))


def shard_number(name: str) -> int:
    """Return the number in a shard's name, which ends in a number and one suffix."""
    return int(Path(name).stem.rpartition("-")[2])


def retry_failed(folder: Path) -> None:
    """Move the errors aside, so that their rows run again; the index notices that they are gone."""
    errors = folder / ERRORS
    if errors.exists() and errors.stat().st_size:
        errors.rename(folder / f"errors.retried-{len(list(folder.glob(_RETRIED)))}.jsonl")


def recover(folder: Path, index: Index, archive: Archive | None = None) -> Totals:
    """Update the index to match the files and the archive, and return the totals.

    A crash may tear the end of the last shard and of the errors. Damaged lines are cut out there, and their rows count
    as unfinished. Raises `ConfigError` for a file that is damaged elsewhere.
    """
    known = index.extents()
    archived = set(archive.names()) if archive is not None else set()
    if any(_size(folder / name) < extent.bytes for name, extent in known.items()) or index.archived() - archived:
        index.clear()
        known = {}
    totals = index.totals()
    for name in sorted(archived - index.archived()):
        assert archive is not None
        totals.completed += sum(index.finish(row) for row in archive.rows(name))
        index.archive(name)
    totals.seconds += _lost_seconds(folder, known, index.committed_at())
    results = shards(folder)
    retried = sorted(folder.glob(_RETRIED))
    growing = {folder / ERRORS, *results[-1:], *retried}
    for path in (*retried, *results, *([folder / ERRORS] if (folder / ERRORS).exists() else [])):
        extent = _read(path, known.get(path.name, Extent()), index, totals, retried=path in retried)
        if extent.bytes < _size(path):
            _mend(path, extent, growing)
            extent = _read(path, extent, index, totals, retried=path in retried)
        index.commit({path.name: extent}, totals)
    index.commit({}, totals)
    return totals


def count_line(totals: Totals, line: Line) -> None:
    """Add a line to the totals."""
    if line.failure is not None:
        totals.failed += 1
        return
    totals.completed += 1
    if line.metrics is not None:
        totals.input_tokens += line.metrics.input_tokens
        totals.output_tokens += line.metrics.output_tokens


def _lost_seconds(folder: Path, known: Mapping[str, Extent], committed_at: float) -> float:
    """Return how long a killed session wrote lines after its last commit."""
    grown = [folder / name for name, extent in known.items() if _size(folder / name) > extent.bytes]
    written_at = max((path.stat().st_mtime for path in grown), default=0.0)
    # a copied file may have any modification time
    return min(max(written_at - committed_at, 0.0), _MOST_LOST_SECONDS)


def _read(path: Path, extent: Extent, index: Index, totals: Totals, *, retried: bool) -> Extent:
    """Index the lines after the extent, and return the end of the file's intact part."""
    size, lines = extent.bytes, extent.lines
    with path.open("rb") as file:
        file.seek(size)
        for packed in file:
            line = unpack_line(packed)
            if line is None:
                break
            if retried:
                index.retry(line.row)
            elif index.finish(line.row):
                count_line(totals, line)
            size += len(packed)
            lines += 1
    return Extent(size, lines)


def _mend(path: Path, extent: Extent, growing: set[Path]) -> None:
    """Remove the damaged lines after the extent; intact lines among them stay."""
    if path not in growing:
        raise ConfigError(
            f"{path} is damaged at line {extent.lines + 1}: mend that line, or delete the file to redo it"
        )
    draft = path.with_name(path.name + ".part")
    with path.open("rb") as damaged, draft.open("wb") as whole:
        whole.write(damaged.read(extent.bytes))
        whole.writelines(packed for packed in damaged if unpack_line(packed) is not None)
        whole.flush()
        os.fsync(whole.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
