"""Files of one JSON object a line: batch lines of Moondream and of OpenAI, even mixed in one file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from stoop.bulk.row import Row
from stoop.bulk.sources import openai_lines
from stoop.bulk.sources.source import file_facts, image_at
from stoop.errors import ConfigError
from stoop_schemas.codec import PACKED_LIMIT
from stoop_schemas.failure import FailureCode, Rejected
from stoop_schemas.skill import Settings

__all__ = ["JsonLines", "read_line", "read_moondream"]

_FIELDS: Final = (
    *("question", "object", "length", "reasoning", "spatial_refs", "messages", "date"),
    *("input", "prompt_name", "dimensions", "kinds", "query", "documents", "truncate"),
    *("metadata", "deadline", "max_attempts"),
)


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The lines of a file; a row's name is the number of its line, from 1. Paths are relative to its own folder."""

    path: Path
    make: Callable[[str, bytes, Path], Row] = field(default_factory=lambda: _row)

    @property
    def facts(self) -> dict[str, Any]:
        """The file's path and digest; rows are identified by position, so the file must not change."""
        return file_facts(self.path)

    def rows(self) -> Iterator[Row]:
        """Read line by line; a line that is not a valid row has a `problem`."""
        for number, line in enumerate(self._lines(), start=1):
            if line.strip():
                yield self.make(str(number), line, self.path.parent)

    def count(self) -> int:
        """Count the lines that are not empty."""
        return sum(1 for line in self._lines() if line.strip())

    def _lines(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                while line := file.readline(PACKED_LIMIT + 1):
                    rest = line
                    while len(rest) > PACKED_LIMIT and not rest.endswith(b"\n"):
                        rest = file.readline(PACKED_LIMIT + 1)
                    yield line
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror or error}") from error


def read_moondream(name: str, line: dict[str, Any], folder: Path) -> Row:
    """Make a row of `{"id", "skill", "image", "length" | "question" | "object"}`, or of a job of our own contract."""
    fields = {field: line[field] for field in _FIELDS if line.get(field) is not None}
    own = line.get("custom_id", line.get("id"))
    if own is not None:
        fields["custom_id"] = str(own)
    image, skill = line.get("image"), line.get("skill")
    if not isinstance(image, str | None) or not isinstance(skill, str | None):
        raise Rejected(FailureCode.MALFORMED, "image and skill must be text")
    if "image" in line and not image:
        raise Rejected(FailureCode.MALFORMED, "image is empty: leave the field out to ask a question without an image")
    # `settings` is our field; Moondream's lines have the same names at the top level
    flat = {field: line[field] for field in Settings.__struct_fields__ if line.get(field) is not None}
    settings = line.get("settings") or {}
    if not isinstance(settings, dict):
        raise Rejected(FailureCode.MALFORMED, "settings must be an object")
    where = None if image is None else image_at(image, folder)
    return Row(name, image=where, skill=skill, fields=fields, settings=flat | settings)


def _row(name: str, packed: bytes, folder: Path) -> Row:
    try:
        line = read_line(packed)
        if not isinstance(line, dict):
            raise Rejected(FailureCode.MALFORMED, "the line is not a JSON object")
        read = openai_lines.read_line if openai_lines.is_line(line) else read_moondream
        return read(name, line, folder)
    except Rejected as rejected:
        return Row(name, problem=rejected.failure)


def read_line(packed: bytes) -> Any:
    """Return the JSON value of a line; raise `Rejected` for a line that has none, or too many bytes."""
    if len(packed) > PACKED_LIMIT:
        raise Rejected(FailureCode.MALFORMED, f"the line has over {PACKED_LIMIT} bytes")
    try:
        return msgspec.json.decode(packed.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(FailureCode.MALFORMED, f"not JSON: {error}") from error
