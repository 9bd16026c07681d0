"""Shards as Parquet: the columns `row`, `id` and `vector`, a list of float32 values of fixed length."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoop.bulk.output.line import Line
from stoop.bulk.vectors.shard import read_lines
from stoop.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SUFFIX", "companions", "read_rows", "write"]

SUFFIX: Final = ".parquet"
_GROUP_BYTES: Final = 32 << 20
"""Bytes of vectors in a row group, which is held in memory while it is written."""


def write(shard: Path, stem: Path) -> list[Path]:
    """Write the shard's vectors to a file that begins with `stem`, and return it.

    Raises `ConfigError` without pyarrow, and for vectors of different lengths.
    """
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise ConfigError("shards as Parquet need pyarrow: pip install 'stoop[export]'") from error
    path, writer = stem.with_name(stem.name + SUFFIX), None
    try:
        for group in _groups(shard):
            batch = _batch(group)
            if writer is None:
                writer = pq.ParquetWriter(path, batch.schema, compression="zstd", use_dictionary=False)
            if batch.schema != writer.schema:
                raise ConfigError(f"the vectors of {shard} have different lengths: name one --model")
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
    return [path]


def companions(name: str) -> list[str]:
    """Return the names of the files beside a shard: there are none."""
    return []


def read_rows(path: Path) -> Iterator[str]:
    """Read the names of the rows."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["row"]):
            yield from batch.column(0).to_pylist()


def _groups(shard: Path) -> Iterator[list[tuple[Line, bytes]]]:
    group: list[tuple[Line, bytes]] = []
    size = 0
    for line in read_lines(shard):
        assert line.output is not None and line.output.embeddings
        vector = base64.b64decode(line.output.embeddings[0])
        group.append((line, vector))
        size += len(vector)
        if size > _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _batch(group: list[tuple[Line, bytes]]) -> "pa.RecordBatch":
    import pyarrow as pa

    width = len(group[0][1])
    if any(len(vector) != width for _, vector in group):
        raise ConfigError("the vectors of a shard have different lengths: name one --model")
    packed = pa.py_buffer(b"".join(vector for _, vector in group))
    values = pa.Array.from_buffers(pa.float32(), len(group) * width // 4, [None, packed])
    vectors = pa.FixedSizeListArray.from_arrays(values, width // 4)
    rows = pa.array([line.row for line, _ in group], pa.string())
    ids = pa.array([line.id for line, _ in group], pa.string())
    return pa.RecordBatch.from_arrays([rows, ids, vectors], names=["row", "id", "vector"])
