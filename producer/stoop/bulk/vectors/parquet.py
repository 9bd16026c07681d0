"""Shards as Parquet: the columns `row`, `id`, and one for each kind of vectors, of float32 values.

`vector` is a list of fixed length, `sparse` a struct of `indices` and `values`, `colbert` a list of vectors.
"""

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoop.bulk.output.line import Line
from stoop.bulk.vectors.shard import read_lines
from stoop.errors import ConfigError
from stoop_schemas.skill import Output, SparseVector, TokenVectors

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


def _groups(shard: Path) -> Iterator[list[Line]]:
    group: list[Line] = []
    size = 0
    for line in read_lines(shard):
        group.append(line)
        size += _weight(line)
        if size > _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _weight(line: Line) -> int:
    """Return the bytes of the line's vectors as they are in memory, about."""
    output = line.output or Output()
    sparse = sum(len(each.indices) for each in output.sparse or ())
    return sum(map(len, output.embeddings or ())) + 40 * sparse + sum(len(each.values) for each in output.colbert or ())


def _batch(group: list[Line]) -> "pa.RecordBatch":
    import pyarrow as pa

    outputs = [line.output or Output() for line in group]
    columns = {
        "row": pa.array([line.row for line in group], pa.string()),
        "id": pa.array([line.id for line in group], pa.string()),
    }
    if outputs[0].embeddings:
        columns["vector"] = _dense([each for output in outputs for each in output.embeddings or ()])
    if outputs[0].sparse:
        columns["sparse"] = _sparse([each for output in outputs for each in output.sparse or ()])
    if outputs[0].colbert:
        columns["colbert"] = _colbert([each for output in outputs for each in output.colbert or ()])
    return pa.RecordBatch.from_pydict(columns)


def _dense(packed: list[str]) -> "pa.Array":
    """Return a list of fixed length for each vector."""
    import pyarrow as pa

    vectors = [base64.b64decode(each) for each in packed]
    width = len(vectors[0])
    if any(len(vector) != width for vector in vectors):
        raise ConfigError("the vectors of a shard have different lengths: name one --model")
    values = pa.Array.from_buffers(pa.float32(), len(vectors) * width // 4, [None, pa.py_buffer(b"".join(vectors))])
    return pa.FixedSizeListArray.from_arrays(values, width // 4)


def _sparse(weights: list[SparseVector]) -> "pa.Array":
    """Return a struct of two lists for each text."""
    import pyarrow as pa

    kind = pa.struct([("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])
    return pa.array([{"indices": each.indices, "values": each.values} for each in weights], kind)


def _colbert(texts: list[TokenVectors]) -> "pa.Array":
    """Return a list of vectors for each text."""
    import pyarrow as pa

    packed = [base64.b64decode(each.values) for each in texts]
    width = max(len(values) // max(each.count, 1) for each, values in zip(texts, packed, strict=True))
    values = pa.Array.from_buffers(pa.float32(), sum(map(len, packed)) // 4, [None, pa.py_buffer(b"".join(packed))])
    ends = itertools.accumulate((each.count for each in texts), initial=0)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.FixedSizeListArray.from_arrays(values, width // 4))
