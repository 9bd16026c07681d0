"""Rows of a question, an image and its answers, from a folder or a Parquet file."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Row", "read_rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One question about an image, a path or its bytes; `id` is the same in every run."""

    id: str
    question: str
    image: Path | bytes
    answers: tuple[str, ...]


def read_rows(source: Path) -> Iterator[Row]:
    """Read a folder with rows.jsonl, whose images are paths in it, or a Parquet file.

    A row has `question`, `image` and `answers` (or `answer`, or ChartQA's `label`). In Parquet an image is bytes, a
    path, or {"bytes": ...}. Raises ValueError for a row that lacks a field.
    """
    folder = source if source.is_dir() else source.parent
    for number, fields in enumerate(_jsonl(source / "rows.jsonl") if source.is_dir() else _parquet(source)):
        yield _row(number, fields, folder)


def _jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet  # part of the extra `export`, and not needed for a folder

    for group in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=64):
        yield from group.to_pylist()


def _row(number: int, fields: Mapping[str, Any], folder: Path) -> Row:
    question = fields.get("question", fields.get("query"))
    answers = next((fields[name] for name in ("answers", "answer", "label") if fields.get(name) is not None), None)
    image = fields.get("image")
    if isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if question is None or answers is None or image is None:
        raise ValueError(f"row {number} lacks a question, an image or answers: it has {', '.join(fields)}")
    texts = tuple(map(str, answers)) if isinstance(answers, list) else (str(answers),)
    place = image if isinstance(image, bytes) else folder / image
    digest = hashlib.blake2b(f"{number}\n{question}".encode(), digest_size=8)
    return Row(digest.hexdigest(), str(question), place, texts)
