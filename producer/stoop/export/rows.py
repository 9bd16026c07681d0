"""Results as files hold them: each line is a result together with its question."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeGuard

import msgspec

from stoop.errors import ConfigError
from stoop_schemas.failure import Failure
from stoop_schemas.result import Metrics
from stoop_schemas.skill import Output
from stoop_schemas.state import State

__all__ = ["BadLine", "Row", "read_rows", "unpack_row"]

_ANYTHING: Final = "object"
_MOST_SIDE: Final = 1 << 20  # pixels; no image is larger
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of a bulk run, or a result of the wire; unused fields are dropped.

    Beside the result's own fields it may have its job's `image`, `object`, `question` and `length`, and the image's
    `width` and `height` in pixels. If one of these is missing, it is looked up in `metadata`.
    """

    id: str | None = None
    status: State | None = None
    skill: str | None = None
    output: Output | None = None
    failure: Failure | None = None
    finish_reason: str | None = None
    metrics: Metrics | None = None
    model: str | None = None
    worker: str | None = None
    attempt: int | None = None
    custom_id: str | None = None
    metadata: dict[str, Any] | None = None
    image: str | None = None
    object: str | None = None
    question: str | None = None
    length: str | None = None
    width: int | None = None
    height: int | None = None

    @property
    def ending(self) -> str:
        """The terminal state in which the job ended."""
        if self.status is not None:
            return self.status.value
        return (State.COMPLETED if self.output is not None else State.FAILED).value

    @property
    def completed(self) -> bool:
        """True if there is an answer."""
        return self.output is not None and self.ending == State.COMPLETED

    @property
    def address(self) -> str | None:
        """The image's address from the job; None if the job has no image."""
        return self.image or self._text("image")

    @property
    def label(self) -> str:
        """The object that the job looked for, on one line."""
        label = self.object or self._text("object") or self._text("label") or ""
        return " ".join(_CONTROL.sub(" ", label).split()) or _ANYTHING

    @property
    def asked(self) -> str:
        """The question; empty if there is none."""
        return self.question or self._text("question") or ""

    @property
    def size(self) -> tuple[int, int] | None:
        """The image's (width, height) in pixels; None if the row lacks them."""
        metadata = (self.metadata or {}) if self.width is None or self.height is None else {}
        width, height = metadata.get("width", self.width), metadata.get("height", self.height)
        return (width, height) if _is_side(width) and _is_side(height) else None

    def _text(self, name: str) -> str | None:
        found = (self.metadata or {}).get(name)
        return found if isinstance(found, str) and found else None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not a result; `place` is its file and line number."""

    place: str
    message: str


_ROW: Final = msgspec.json.Decoder(Row)


def read_rows(source: str) -> Iterator[Row | BadLine]:
    """Yield the results from a folder of a bulk run, a file of JSON lines, or standard input (`-`).

    One line is held at a time. The results of a folder are `results-*.jsonl` and the failed rows in `errors.jsonl`; if
    it has neither, every `*.jsonl`. Raises `ConfigError` if there is nothing to read.
    """
    if source == "-":
        yield from _read_lines(sys.stdin.buffer, "standard input")
        return
    for path in _files(Path(source).expanduser()):
        with _opened(path) as lines:
            yield from _read_lines(lines, path.name)


def unpack_row(packed: bytes) -> Row:
    """Read one line. Raises `msgspec.DecodeError`, `UnicodeDecodeError` or `RecursionError`."""
    return _ROW.decode(packed)


def _is_side(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _MOST_SIDE


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"there is no file or folder {path}")
    found = [*sorted(path.glob("results-*.jsonl")), *path.glob("errors.jsonl")] or sorted(path.glob("*.jsonl"))
    if not found:
        raise ConfigError(f"{path} holds no results: give a folder with results-*.jsonl, a .jsonl file, or -")
    return found


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as lines:
            yield lines
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _read_lines(lines: BinaryIO, name: str) -> Iterator[Row | BadLine]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = unpack_row(line)
        except _UNREADABLE as error:
            yield BadLine(f"{name}:{number}", f"not a result: {error}")
            continue
        if row.output is None and row.failure is None and row.status is None:
            yield BadLine(f"{name}:{number}", "not a result: it has neither output nor failure")
        else:
            yield row
