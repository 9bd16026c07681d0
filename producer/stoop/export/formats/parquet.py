"""Parquet: one row a result, in the order of the files; boxes and points are lists of structs, as fractions.

Nothing is clamped or left out: a row has the model's answer unchanged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stoop.errors import ConfigError, StoopError
from stoop.export.ahead import ahead
from stoop.export.images import Images, shape_inline
from stoop.export.pixels import Shape
from stoop.export.report import Report
from stoop.export.rows import BadLine, Row

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["write_parquet"]

_GROUP_ROWS: Final = 8192
_PLAIN: Final = ("id", "custom_id", "skill", "length", "finish_reason", "model", "worker", "attempt")


def write_parquet(rows: Iterator[Row | BadLine], images: Images, report: Report, out: Path) -> None:
    """Write the completed rows; `width` and `height` are those of the stored pixels, from the image or the result.

    Raises `ConfigError` without pyarrow.
    """
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise ConfigError("writing Parquet needs pyarrow: pip install 'stoop[export]'") from error
    schema = _schema()
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _groups(_sized(_completed(rows, report), images, report)):
            for batch in _batches(group, schema, report):
                writer.write_batch(batch)
                report.written["rows"] += batch.num_rows


def _schema() -> "pa.Schema":
    import pyarrow as pa

    box = pa.struct([(name, pa.float64()) for name in ("x_min", "y_min", "x_max", "y_max")])
    point = pa.struct([("x", pa.float64()), ("y", pa.float64())])
    places = pa.list_(pa.list_(pa.float64()))
    grounding = pa.struct([("start_idx", pa.int64()), ("end_idx", pa.int64()), ("points", places)])
    counts = [(f"{name}_tokens", pa.int64()) for name in ("input", "output", "cached")]
    times = [(f"{name}_ms", pa.float64()) for name in _times()]
    text = {name: pa.string() for name in ("image", "object", "question", "answer", "caption")}
    return pa.schema(
        [(name, pa.int64() if name == "attempt" else pa.string()) for name in _PLAIN]
        + [*text.items(), *((name, pa.int64()) for name in ("width", "height", "orientation"))]
        + [("objects", pa.list_(box)), ("points", pa.list_(point))]
        + [("reasoning", pa.struct([("text", pa.string()), ("grounding", pa.list_(grounding))]))]
        + [("metrics", pa.struct(counts + times)), ("metadata", pa.string())]
    )


def _times() -> tuple[str, ...]:
    return ("queue_time", "fetch_time", "image_time", "prefill_time", "decode_time", "ttft")


def _completed(rows: Iterator[Row | BadLine], report: Report) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, BadLine):
            report.error(row.place, row.message)
            continue
        report.rows += 1
        if row.completed:
            yield row
        else:
            report.unfinished[row.ending] += 1


def _sized(rows: Iterator[Row], images: Images, report: Report) -> Iterator[tuple[Row, Shape | None]]:
    def shape(row: Row) -> Shape | None:
        if row.address is None:
            return _shape_in_row(row)
        return shape_inline(row.address) or (images.shape(row.address) if images.found else _shape_in_row(row))

    for row, found in ahead(shape, rows):
        if isinstance(found, StoopError):
            report.error(row.address or "", str(found))
            yield row, _shape_in_row(row)
        else:
            yield row, found


def _shape_in_row(row: Row) -> Shape | None:
    return Shape(row.size) if row.size else None


def _groups(rows: Iterator[tuple[Row, Shape | None]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    for row, shape in rows:
        group.append(_record(row, shape))
        if len(group) == _GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _record(row: Row, shape: Shape | None) -> dict[str, Any]:
    output = msgspec.to_builtins(row.output)
    width, height = shape.stored if shape else (None, None)
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        **output,
        "image": row.address,
        "object": row.object,
        "question": row.question,
        "width": width,
        "height": height,
        "orientation": shape.orientation if shape else None,
        "metrics": None if row.metrics is None else msgspec.to_builtins(row.metrics),
        "metadata": None if row.metadata is None else msgspec.json.encode(row.metadata).decode(),
    }


def _batches(group: list[dict[str, Any]], schema: "pa.Schema", report: Report) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    try:
        yield pa.RecordBatch.from_pylist(group, schema=schema)
    except (pa.ArrowException, OverflowError) as error:
        if len(group) == 1:
            # a number beyond 64 bits: no worker writes one, so the file was edited by hand
            report.error(str(group[0]["id"]), f"the row does not fit the columns: {error}")
            return
        half = len(group) // 2
        yield from _batches(group[:half], schema, report)
        yield from _batches(group[half:], schema, report)
