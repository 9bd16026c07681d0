"""Texts whose vectors a test knows, and shards read back."""

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State

__all__ = ["embedded", "read_npy", "read_parquet", "vector_of", "write_texts"]


def vector_of(text: str) -> tuple[float, float]:
    """The vector of a text such as `text 12`."""
    number = float(text.split()[1])
    return number, number / 2


def embedded(job: Job) -> Result:
    """The result of a job whose texts all have a vector."""
    packed = [base64.b64encode(struct.pack("<2f", *vector_of(text))).decode() for text in job.input or ()]
    return Result(
        id=job.id,
        status=State.COMPLETED,
        skill=Skill.EMBED,
        output=Output(embeddings=packed),
        finish_reason="stop",
        metrics=Metrics(input_tokens=3 * len(packed)),
        model="tiny",
    )


def write_texts(path: Path, count: int, bad: set[int] = frozenset(), long: set[int] = frozenset()) -> Path:  # type: ignore[assignment]
    """Write lines numbered from 1, with the ids `id-1` and so on; the worker refuses a `long` text."""
    lines = []
    for number in range(1, count + 1):
        line = {"id": f"id-{number}", "text": f"text {number}" + (" long" if number in long else "")}
        lines.append("not json\n" if number in bad else json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path


def read_parquet(folder: Path) -> list[tuple[str, str, tuple[float, ...]]]:
    """The row, id and vector of every text in the shards."""
    found = []
    for path in sorted(folder.glob("vectors-*.parquet")):
        columns = pq.read_table(path).to_pydict()
        vectors = map(tuple, columns["vector"])
        found += list(zip(columns["row"], columns["id"], vectors, strict=True))
    return found


def read_npy(folder: Path) -> list[tuple[str, str, tuple[float, ...]]]:
    """The same from .npy files and the files beside them."""
    found = []
    for path in sorted(folder.glob("vectors-*.npy")):
        array = np.load(path, mmap_mode="r")
        assert array.dtype == np.float32
        rows = [json.loads(line) for line in path.with_suffix(".rows.jsonl").read_text().splitlines()]
        assert len(rows) == len(array)
        found += [(row["row"], row["id"], tuple(values.tolist())) for row, values in zip(rows, array, strict=True)]
    return found
