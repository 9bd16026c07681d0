"""Texts to embed: a field of JSON lines, or a column of a CSV or Parquet file, several texts in one job."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stoop.bulk.row import Row, grouped
from stoop.bulk.sources.jsonl import JsonLines, read_line
from stoop.bulk.sources.source import Source
from stoop.bulk.sources.table import Csv, Parquet, Reading
from stoop.errors import ConfigError
from stoop_schemas.failure import Failure, FailureCode, Rejected
from stoop_schemas.texts import TEXTS_LENGTH_LIMIT

__all__ = ["GroupedTexts", "open_texts"]

_GROUP_LENGTH: Final = TEXTS_LENGTH_LIMIT // 4
"""Most characters of a group of several texts, so that a job stays small in Redis."""


@dataclass(frozen=True, slots=True)
class GroupedTexts:
    """The first `most` texts of a source (None: all), up to `size` of them in a row. A row with a problem is alone."""

    texts: Source
    size: int
    most: int | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the source. The size is not among them: it may change from session to session."""
        return self.texts.facts

    def rows(self) -> Iterator[Row]:
        """Read the source once, in its order."""
        members: list[Row] = []
        length = 0
        for row in itertools.islice(self.texts.rows(), self.most):
            if row.problem is not None:
                yield row
                continue
            if members and length + row.weight > _GROUP_LENGTH:
                yield grouped(members)
                members, length = [], 0
            members.append(row)
            length += row.weight
            if len(members) == self.size:
                yield grouped(members)
                members, length = [], 0
        if members:
            yield grouped(members)

    def count(self) -> int:
        """Count the texts."""
        count = self.texts.count()
        return count if self.most is None else min(count, self.most)


def open_texts(named: str, column: str) -> Source:
    """Return the texts of a .jsonl, .csv, .tsv or .parquet file; `column` is their field or column.

    A line of a .jsonl file may also be a text itself. The field or column `id` is a text's own id, if there is one.
    Raises `ConfigError` for anything else.
    """
    path = Path(named).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    match path.suffix.lower():
        case ".jsonl" | ".ndjson":
            return JsonLines(path, lambda name, packed, _: _row_of_line(name, packed, column))
        case ".csv" | ".tsv":
            return Csv(path, column, _TEXTS)
        case ".parquet" | ".pq":
            return Parquet(path, column, _TEXTS)
    raise ConfigError(f"{path}: give a .jsonl, .csv, .tsv or .parquet file")


def _row_of_line(name: str, packed: bytes, column: str) -> Row:
    try:
        line = read_line(packed)
    except Rejected as rejected:
        return Row(name, problem=rejected.failure)
    if isinstance(line, str):
        line = {column: line}
    if not isinstance(line, dict) or column not in line:
        message = f"the line is neither a text nor an object with the field {column!r}"
        return Row(name, problem=Failure.of(FailureCode.MALFORMED, message))
    return _row(name, line.get(column), line.get("custom_id", line.get("id")))


def _row_of_record(number: int, record: Mapping[str, Any], column: str, _: Path) -> Row:
    return _row(str(number), record.get(column), record.get("id"))


_TEXTS: Final = Reading(("id",), _row_of_record, lenient=True)


def _row(name: str, text: object, own: object) -> Row:
    fields: dict[str, Any] = {} if own in (None, "") else {"custom_id": str(own).encode("utf-8", "replace").decode()}
    try:
        return Row(name, fields={**fields, "input": [_checked(text)]})
    except Rejected as rejected:
        return Row(name, fields=fields, problem=rejected.failure)


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise Rejected(FailureCode.MALFORMED, f"the text is {_KINDS.get(type(text), 'no string')}")
    if not text.strip():
        raise Rejected(FailureCode.MALFORMED, "the text is empty")
    if len(text) > TEXTS_LENGTH_LIMIT:
        raise Rejected(
            FailureCode.INVALID_ARGUMENT, f"the text has {len(text)} characters: at most {TEXTS_LENGTH_LIMIT}"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(FailureCode.MALFORMED, "the text is not valid UTF-8") from error
    return text


_KINDS: Final = {type(None): "missing", bytes: "bytes", list: "a list", dict: "an object", bool: "true or false"}
