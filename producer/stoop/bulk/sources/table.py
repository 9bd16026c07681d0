"""Columns of a CSV file or of a Parquet file."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from producer.bulk.row import Row
from producer.bulk.sources.source import file_facts, image_at
from producer.errors import ConfigError
from schemas.codec import PACKED_LIMIT
from schemas.failure import FailureCode, Rejected

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["Csv", "Parquet"]

_FIELDS: Final = ("question", "object", "length")
_GROUP: Final = 16  # rows may bring their images along


@dataclass(frozen=True, slots=True)
class Csv:
    """The records of a CSV file with a header; a row's name is the record's number, from 1.

    The image is in the column `column`. Columns named id, skill, question, object or length, if there are any, are what
    they say. Paths begin at the file's own folder.
    """

    path: Path
    column: str

    @property
    def facts(self) -> dict[str, Any]:
        """Where the file is, and what is in it: rows are known by their place, so it must stay as it is."""
        return file_facts(self.path) | {"column": self.column}

    def rows(self) -> Iterator[Row]:
        """Read record by record. Raises `ConfigError` if the column is not there."""
        header: list[str] = []
        for number, record in enumerate(self._records()):
            if number == 0:
                header = record
                _require(self.column, header, self.path)
                continue
            yield _row(number, dict(zip(header, record, strict=False)), self.column, self.path.parent)

    def count(self) -> int:
        """Count the records."""
        return max(0, sum(1 for _ in self._records()) - 1)

    def _records(self) -> Iterator[list[str]]:
        csv.field_size_limit(PACKED_LIMIT)
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                delimiter = "\t" if self.path.suffix.lower() == ".tsv" else ","
                yield from (record for record in csv.reader(file, delimiter=delimiter) if record)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (csv.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is no CSV file in UTF-8: {error}") from error


@dataclass(frozen=True, slots=True)
class Parquet:
    """The rows of a Parquet file; the image's column holds addresses, paths, bytes, or structs with bytes or a path."""

    path: Path
    column: str

    @property
    def facts(self) -> dict[str, Any]:
        """Where the file is, and what is in it: rows are known by their place, so it must stay as it is."""
        return file_facts(self.path) | {"column": self.column}

    def rows(self) -> Iterator[Row]:
        """Read a few rows at a time, only the columns that mean something. Raises `ConfigError` without pyarrow."""
        with self._file() as file:
            names = file.schema_arrow.names
            _require(self.column, names, self.path)
            wanted = [self.column, *(name for name in ("id", "skill", *_FIELDS) if name in names)]
            number = 0
            for group in file.iter_batches(batch_size=_GROUP, columns=wanted):
                for record in group.to_pylist():
                    number += 1
                    yield _row(number, record, self.column, self.path.parent)

    def count(self) -> int:
        """Read the count that the file tells."""
        with self._file() as file:
            return int(file.metadata.num_rows)

    def _file(self) -> "ParquetFile":
        try:
            import pyarrow
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError as error:
            raise ConfigError("Parquet needs pyarrow: pip install 'stoop[export]'") from error
        try:
            return ParquetFile(self.path, memory_map=True)
        except (OSError, pyarrow.ArrowException) as error:
            raise ConfigError(f"cannot read {self.path}: {error}") from error


def _require(column: str, names: list[str], path: Path) -> None:
    if column not in names:
        raise ConfigError(f"{path} has no column {column!r}: give --column, one of {', '.join(names)}")


def _row(number: int, record: Mapping[str, Any], column: str, folder: Path) -> Row:
    fields = {name: record[name] for name in _FIELDS if record.get(name)}
    if record.get("id") not in (None, ""):
        fields["custom_id"] = str(record["id"])
    try:
        image = _image(record.get(column), folder)
    except Rejected as rejected:
        return Row(str(number), fields=fields, problem=rejected.failure)
    return Row(str(number), image=image, skill=record.get("skill") or None, fields=fields)


def _image(value: object, folder: Path) -> str | Path | bytes | None:
    match value:
        case None | "":
            return None
        case bytes() as encoded:
            return encoded
        case str() as text:
            return image_at(text, folder)
        case {"bytes": bytes() as encoded}:
            return encoded
        case {"path": str() as text}:
            return image_at(text, folder)
    raise Rejected(FailureCode.MALFORMED, "the image's column must have addresses, paths or bytes")
