"""Each image asked several questions, or about several objects: a row for each of them."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stoop.bulk.row import Row
from stoop.bulk.sources.source import Source
from stoop.errors import ConfigError
from stoop_schemas.skills import takers_of

__all__ = ["EachValue", "read_objects"]


@dataclass(frozen=True, slots=True)
class EachValue:
    """The first `most` rows of `source` (None: all), each as often as its field has `values`, named `row [value]`.

    `skill` is for rows that name none. A row appears once if it has the field itself, if its skill does not take the
    field, or if the row has a problem.
    """

    source: Source
    skill: str | None
    field: str
    values: tuple[str, ...]
    most: int | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the source."""
        return self.source.facts

    def rows(self) -> Iterator[Row]:
        """Read the source once, and give the rows of an image one after the other."""
        takers = takers_of(self.field)
        for row in itertools.islice(self.source.rows(), self.most):
            if row.problem or self.field in row.fields or (row.skill or self.skill) not in takers:
                yield row
            else:
                yield from (self._with(row, each) for each in self.values)

    def count(self) -> int:
        """Count the rows; this reads all of them."""
        return sum(1 for _ in self.rows())

    def _with(self, row: Row, each: str) -> Row:
        return replace(row, name=f"{row.name} [{each}]", fields={**row.fields, self.field: each})


def read_objects(path: Path) -> list[str]:
    """Read the objects to look for from a text file, one on each line; raises `ConfigError`."""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    objects = [line.strip() for line in text.splitlines() if line.strip()]
    if not objects:
        raise ConfigError(f"{path} names no object: write one on each line")
    return objects
