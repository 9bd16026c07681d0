"""Each image asked about several objects: a row for each of them."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stoop.bulk.row import Row
from stoop.bulk.sources.source import Source
from stoop.errors import ConfigError

__all__ = ["EachObject", "read_objects"]

_SKILLS = ("detect", "point")


@dataclass(frozen=True, slots=True)
class EachObject:
    """The first `most` rows of `source` (None: all), each as often as there are `objects`, named `row [object]`.

    `skill` is that of rows that name none. Rows that say themselves what to look for, those of other skills and those
    with a problem are there once.
    """

    source: Source
    skill: str | None
    objects: tuple[str, ...]
    most: int | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts of the source."""
        return self.source.facts

    def rows(self) -> Iterator[Row]:
        """Read the source once, and give the rows of an image one after the other."""
        for row in itertools.islice(self.source.rows(), self.most):
            if row.problem or "object" in row.fields or (row.skill or self.skill) not in _SKILLS:
                yield row
            else:
                yield from (self._about(row, each) for each in self.objects)

    def count(self) -> int:
        """Count the rows, which may mean to read them all."""
        return sum(1 for _ in self.rows())

    def _about(self, row: Row, each: str) -> Row:
        return replace(row, name=f"{row.name} [{each}]", fields={**row.fields, "object": each})


def read_objects(path: Path) -> list[str]:
    """Read what to look for from a text file with one object on each line; raises `ConfigError`."""
    try:
        text = path.expanduser().read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    objects = [line.strip() for line in text.splitlines() if line.strip()]
    if not objects:
        raise ConfigError(f"{path} names no object: write one on each line")
    return objects
