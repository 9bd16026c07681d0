"""Columns of a CSV file or of a Parquet file."""

import csv
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stoop.bulk.row import Row
from stoop.bulk.sources.source import file_facts, image_at
from stoop.errors import ConfigError
from stoop_schemas.codec import PACKED_LIMIT
from stoop_schemas.failure import Failure, FailureCode, Rejected

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

__all__ = ["Csv", "Parquet", "Reading"]

_FIELDS: Final = ("question", "object", "length")
_END: Final = "\0end"
_GROUP: Final = 16  # small, because rows may contain their images


@dataclass(frozen=True, slots=True)
class Reading:
    """The rule that turns records into rows: the `columns` to read beside the main one, and the function that makes a
    row of them.

    `make` takes the record's number, the record, the main column and the file's folder. With `lenient`, bytes of a CSV
    file that are not UTF-8 become lone surrogates instead of ending the run.
    """

    columns: tuple[str, ...]
    make: Callable[[int, Mapping[str, Any], str, Path], Row]
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Csv:
    """The records of a CSV file with a header; a row's name is the record's number, from 1.

    By default the column `column` has images. Columns named id, skill, question, object or length become those
    fields. Paths are relative to the file's own folder. A record whose image is empty has a problem, and so has one
    with more fields than the header: its text has a comma and no quotes.
    """

    path: Path
    column: str
    reading: Reading = field(default_factory=lambda: _IMAGES)

    @property
    def facts(self) -> dict[str, Any]:
        """The file's path and digest; rows are identified by position, so the file must not change."""
        return file_facts(self.path) | {"column": self.column}

    def rows(self) -> Iterator[Row]:
        """Read record by record. Raises `ConfigError` if the column is missing or double, or a quote is open."""
        header: list[str] = []
        for number, record in enumerate(self._records()):
            if number == 0:
                header = record
                self._check(header)
            elif any(record[len(header) :]):
                yield Row(str(number), problem=_too_long(record, header))
            else:
                yield self.reading.make(number, dict(zip(header, record, strict=False)), self.column, self.path.parent)

    def count(self) -> int:
        """Count the records."""
        return max(0, sum(1 for _ in self._records()) - 1)

    def _records(self) -> Iterator[list[str]]:
        csv.field_size_limit(PACKED_LIMIT)
        try:
            errors = "surrogateescape" if self.reading.lenient else "strict"
            with self.path.open(encoding="utf-8-sig", errors=errors, newline="") as file:
                yield from self._records_of(file)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror or error}") from error
        except (csv.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is not a CSV file in UTF-8: {error}; save it as UTF-8") from error

    def _records_of(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the records, down to one more line that ends them: an open quote would swallow that line too."""
        reader, first = csv.reader(itertools.chain(lines, [_END]), delimiter=self._delimiter), 1
        for record in reader:
            if record == [_END]:
                return
            if record and record[-1].endswith(_END):
                raise ConfigError(f"{self.path}: a quote is open from line {first} to the end of the file: close it")
            if record:
                yield record
            first = reader.line_num + 1

    @property
    def _delimiter(self) -> str:
        return "\t" if self.path.suffix.lower() == ".tsv" else ","

    def _check(self, header: list[str]) -> None:
        other = next((each for each in ";\t|," if each != self._delimiter and each in header[0]), None)
        if len(header) == 1 and other and self.column in header[0].split(other):
            wanted = "tabs" if self._delimiter == "\t" else "commas"
            raise ConfigError(f"{self.path} has {other!r} between its columns: save it with {wanted}")
        _require(self.column, header, self.path)
        if header.count(self.column) > 1:
            raise ConfigError(
                f"{self.path} has {header.count(self.column)} columns {self.column!r}: rename all but one"
            )


@dataclass(frozen=True, slots=True)
class Parquet:
    """The rows of a Parquet file; an image's column holds addresses, paths, bytes, or structs with bytes or a path.

    Rows in a damaged part of the file have a problem; the other rows are read.
    """

    path: Path
    column: str
    reading: Reading = field(default_factory=lambda: _IMAGES)

    @property
    def facts(self) -> dict[str, Any]:
        """The file's path and digest; rows are identified by position, so the file must not change."""
        return file_facts(self.path) | {"column": self.column}

    def rows(self) -> Iterator[Row]:
        """Read a few rows at a time, and only the columns in use. Raises `ConfigError` without pyarrow."""
        with self._file() as file:
            names = file.schema_arrow.names
            _require(self.column, names, self.path)
            wanted = [self.column, *(name for name in self.reading.columns if name in names)]
            for number, record in enumerate(_records(file, wanted), start=1):
                if isinstance(record, Failure):
                    yield Row(str(number), problem=record)
                else:
                    yield self.reading.make(number, record, self.column, self.path.parent)

    def count(self) -> int:
        """Return the row count from the file's metadata."""
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


def _records(file: "ParquetFile", columns: list[str]) -> Iterator[Mapping[str, Any] | Failure]:
    """Yield the records; for each record in a damaged part of the file, yield the reason instead."""
    import pyarrow

    for group in range(file.num_row_groups):
        left = file.metadata.row_group(group).num_rows
        try:
            for batch in file.iter_batches(batch_size=_GROUP, row_groups=[group], columns=columns):
                records = batch.to_pylist()
                left -= len(records)
                yield from records
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            damaged = Failure.of(FailureCode.MALFORMED, f"row group {group} of the file is damaged: {error}")
            yield from itertools.repeat(damaged, left)


def _too_long(record: list[str], header: list[str]) -> Failure:
    counts = f"the record has {len(record)} fields and the header {len(header)}"
    return Failure.of(FailureCode.MALFORMED, f"{counts}: quote each field that contains the separator")


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


_IMAGES: Final[Reading] = Reading(("id", "skill", *_FIELDS), _row)


def _image(value: object, folder: Path) -> str | Path | bytes:
    match value:
        case None | "" | b"":
            raise Rejected(
                FailureCode.MALFORMED,
                "the image's cell is empty: ask a question without an image as a .jsonl line without the field image",
            )
        case bytes() as encoded:
            return encoded
        case str() as text:
            return image_at(text, folder)
        case {"bytes": bytes() as encoded}:
            return encoded
        case {"path": str() as text}:
            return image_at(text, folder)
    raise Rejected(FailureCode.MALFORMED, "the image's column must have addresses, paths or bytes")
