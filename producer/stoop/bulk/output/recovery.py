"""What the files of an earlier session hold: torn ends are cut off, and the index is brought up to them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from producer.bulk.index import Index, Mark, Totals
from producer.bulk.line import Line, unpack_line
from producer.errors import ConfigError

__all__ = ["ERRORS", "count_line", "last_shard", "recover", "retry_failed", "shard_name", "shards"]

ERRORS: Final = "errors.jsonl"
_MOST_LOST_SECONDS: Final = 60.0
_RETRIED: Final = "errors.retried-*.jsonl"


def shard_name(number: int) -> str:
    """Name a shard of the results."""
    return f"results-{number:05}.jsonl"


def shards(folder: Path) -> list[Path]:
    """Return the shards that are there, in order."""
    return sorted(folder.glob("results-[0-9]*.jsonl"))


def last_shard(folder: Path) -> int:
    """Return the number of the shard that grows, 0 if there is none yet."""
    return max((int(path.stem.rpartition("-")[2]) for path in shards(folder)), default=0)


def retry_failed(folder: Path) -> None:
    """Lay the errors aside, so that their rows are tried again; the index notices that they are gone."""
    errors = folder / ERRORS
    if errors.exists() and errors.stat().st_size:
        errors.rename(folder / f"errors.retried-{len(list(folder.glob(_RETRIED)))}.jsonl")


def recover(folder: Path, index: Index) -> Totals:
    """Bring the index to what the files hold, and return the totals.

    The end of the last shard and of the errors may be torn by a crash: it is cut off, and the rows in it count as not
    done. Raises `ConfigError` for a file that is damaged elsewhere.
    """
    known = index.marks()
    if any(_size(folder / name) < mark.bytes for name, mark in known.items()):
        index.clear()
        known = {}
    totals = index.totals()
    totals.seconds += _lost_seconds(folder, known, index.committed_at())
    results = shards(folder)
    retried = sorted(folder.glob(_RETRIED))
    growing = {folder / ERRORS, *results[-1:], *retried}
    for path in (*retried, *results, *([folder / ERRORS] if (folder / ERRORS).exists() else [])):
        mark = _read(path, known.get(path.name, Mark()), index, totals, retried=path in retried)
        if mark.bytes < _size(path):
            _cut(path, mark, growing)
        index.commit({path.name: mark}, totals)
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


def _lost_seconds(folder: Path, known: Mapping[str, Mark], committed_at: float) -> float:
    """Return how long a session that was killed wrote lines after its last commit."""
    grown = [folder / name for name, mark in known.items() if _size(folder / name) > mark.bytes]
    written_at = max((path.stat().st_mtime for path in grown), default=0.0)
    # a copied file may be of any time
    return min(max(written_at - committed_at, 0.0), _MOST_LOST_SECONDS)


def _read(path: Path, mark: Mark, index: Index, totals: Totals, *, retried: bool) -> Mark:
    """Index what is behind the mark, and return how far the file is whole."""
    size, lines = mark.bytes, mark.lines
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
    return Mark(size, lines)


def _cut(path: Path, mark: Mark, growing: set[Path]) -> None:
    if path not in growing:
        raise ConfigError(f"{path} is damaged at line {mark.lines + 1}: mend that line, or delete the file to redo it")
    with path.open("rb+") as file:
        file.truncate(mark.bytes)
        os.fsync(file.fileno())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1
