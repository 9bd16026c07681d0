"""The summary of a run: `summary.json`, and a table of causes with one example each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stoop.bulk.arguments import write_whole
from stoop.bulk.output.index import Totals
from stoop.bulk.output.line import Line, unpack_line
from stoop.bulk.output.recovery import ERRORS
from stoop.bulk.plan import Speed
from stoop.bulk.progress import IMAGES, Unit, spell_seconds
from stoop.terminal import one_line

__all__ = ["SUMMARY", "Cause", "Example", "Summary", "find_causes", "print_summary", "read_speed", "write_summary"]

SUMMARY: Final = "summary.json"


class Example(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row that failed from this cause."""

    row: str
    id: str
    message: str
    image: str | None = None


class Cause(msgspec.Struct, frozen=True):
    """A failure code, the number of rows that failed with it, and the first of these."""

    code: str
    count: int
    example: Example


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions of a run together; `finished` if every row has ended, otherwise `stopped` has the reason.

    `seconds` is the total time of the sessions.
    """

    v: int = 1
    run: str
    finished: bool
    stopped: str | None
    completed: int
    failed: int
    seconds: float
    rows_per_second: float
    tokens_per_second: float
    input_tokens: int
    output_tokens: int
    causes: list[Cause]
    shards: list[str]

    @classmethod
    def of(cls, folder: Path, run: str, totals: Totals, stopped: str | None, shards: list[str]) -> "Summary":
        """Summarise a run; reads the errors in its folder."""
        seconds = max(totals.seconds, 1e-3)
        return cls(
            run=run,
            finished=stopped is None,
            stopped=stopped,
            completed=totals.completed,
            failed=totals.failed,
            seconds=round(totals.seconds, 3),
            rows_per_second=round(totals.ended / seconds, 3),
            tokens_per_second=round(totals.output_tokens / seconds, 3),
            input_tokens=totals.input_tokens,
            output_tokens=totals.output_tokens,
            causes=find_causes(folder),
            shards=shards,
        )


def find_causes(folder: Path) -> list[Cause]:
    """Group the errors of a folder by their code, the most frequent first."""
    counts: dict[str, int] = {}
    examples: dict[str, Example] = {}
    for line in _errors(folder):
        assert line.failure is not None
        code = line.failure.code.value
        counts[code] = counts.get(code, 0) + 1
        examples.setdefault(code, Example(line.row, line.id, line.failure.message, line.image))
    ordered = sorted(counts.items(), key=lambda counted: -counted[1])
    return [Cause(code, count, examples[code]) for code, count in ordered]


def write_summary(folder: Path, summary: Summary) -> None:
    """Write `summary.json`, in place of an earlier session's."""
    write_whole(folder / SUMMARY, msgspec.json.format(msgspec.json.encode(summary), indent=2))


def read_speed(folder: Path) -> Speed | None:
    """Return the speed of the folder's sessions so far, or None if there were none."""
    try:
        summary = msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary)
    except (OSError, msgspec.DecodeError):
        return None
    if not summary.completed or not summary.rows_per_second:
        return None
    tokens = (summary.input_tokens / summary.completed, summary.output_tokens / summary.completed)
    return Speed(summary.rows_per_second, f"measured in {folder}", *tokens)


def print_summary(
    console: Console, folder: Path, summary: Summary, unit: Unit = IMAGES, *, place: str | None = None
) -> None:
    """Print the counts on one line, and the failures in a table. `place` holds the shards, by default the folder."""
    ended = summary.completed + summary.failed
    console.print(
        f"{ended:,} {unit.plural}: {summary.completed:,} answered, {summary.failed:,} failed, in"
        f" {spell_seconds(summary.seconds)}: {summary.rows_per_second:.1f} {unit.short}/s,"
        f" {unit.tokens(summary.input_tokens, summary.output_tokens) / max(summary.seconds, 1e-3):,.0f} tok/s."
        f" Results are in {place or folder}/{_span(summary.shards)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    if not summary.causes:
        return
    table = Table("cause", "rows", "share", "example", box=None)
    for cause in summary.causes:
        example = one_line(f"{cause.example.id}: {cause.example.message}")
        table.add_row(cause.code, f"{cause.count:,}", f"{cause.count / ended:.1%}", Text(example, overflow="fold"))
    console.print(table)
    console.print(
        f"All of them are in {folder}/{ERRORS}; --retry-failed tries them again",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _span(names: list[str]) -> str:
    """Name a range of shards by its first and last."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}" if names else "no file"


def _errors(folder: Path) -> Iterator[Line]:
    path = folder / ERRORS
    if not path.exists():
        return
    with path.open("rb") as file:
        for packed in file:
            line = unpack_line(packed)
            if line is not None and line.failure is not None:
                yield line
