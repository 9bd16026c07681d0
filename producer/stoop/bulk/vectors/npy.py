"""Shards as .npy: an array (texts, values) of float32, and a .jsonl file with the row and id of each vector."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from stoop.bulk.vectors.shard import read_lines
from stoop.errors import ConfigError

__all__ = ["SUFFIX", "companions", "read_rows", "write"]

SUFFIX: Final = ".npy"
_ROWS_SUFFIX: Final = ".rows.jsonl"


class _Row(msgspec.Struct, frozen=True):
    row: str
    id: str


def write(shard: Path, stem: Path) -> list[Path]:
    """Write the shard's vectors to files that begin with `stem`, and return them. The array is the last of them.

    The array is written to disk vector by vector, so memory stays small. Raises `ConfigError` without numpy, and for
    vectors of different lengths.
    """
    try:
        import numpy
    except ModuleNotFoundError as error:
        raise ConfigError("shards as .npy need numpy: pip install 'stoop[export]'") from error
    count = sum(1 for _ in read_lines(shard))
    rows, vectors = stem.with_name(stem.name + _ROWS_SUFFIX), stem.with_name(stem.name + SUFFIX)
    array = None
    with rows.open("wb") as file:
        for number, line in enumerate(read_lines(shard)):
            assert line.output is not None and line.output.embeddings
            values = numpy.frombuffer(base64.b64decode(line.output.embeddings[0]), "<f4")
            if array is None:
                array = numpy.lib.format.open_memmap(vectors, "w+", "<f4", (count, len(values)))
            if array.shape[1] != len(values):
                raise ConfigError(f"row {line.row} has {len(values)} values, others {array.shape[1]}: name one --model")
            array[number] = values
            file.write(msgspec.json.encode(_Row(line.row, line.id)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    assert array is not None, "only shards with lines are archived"
    array.flush()
    return [rows, vectors]


def companions(name: str) -> list[str]:
    """Return the names of the files beside a shard."""
    return [name.removesuffix(SUFFIX) + _ROWS_SUFFIX]


def read_rows(path: Path) -> Iterator[str]:
    """Read the names of the rows from the file beside the array."""
    with path.with_name(companions(path.name)[0]).open("rb") as file:
        for packed in file:
            yield msgspec.json.decode(packed, type=_Row).row
