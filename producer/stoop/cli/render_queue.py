"""Output for operators: tables for people, JSON for programs.

Dead letters and registry entries were written by others, so their text is escaped before it reaches a terminal: each
shows as one line, and its markup has no effect.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.table import Column, Table
from rich.text import Text

from stoop.client.models import LiveModel
from stoop.operator import DeadLetter, LivingWorker, QueueStatus
from stoop.terminal import one_line, open_console
from stoop_schemas.job import ID_LIMIT

__all__ = [
    "letter_facts",
    "print_json",
    "print_letter",
    "print_letters",
    "print_models",
    "print_workers",
    "rates",
    "show_status",
]

_MESSAGE_WIDTH = 60
_WHOLE_WIDTH = 2000


def print_json(value: object) -> None:
    """Print one line of JSON; characters outside ASCII are escaped, so that it too is safe to display."""
    print(json.dumps(value), flush=True)


def rates(before: QueueStatus, after: QueueStatus) -> dict[str, float]:
    """Return the jobs a second between two readings: `submitted`, `ended`, and by each total."""
    seconds = (after.at - before.at) / 1000
    if seconds <= 0:
        return {}
    counts = {name: after.totals[name] - before.totals.get(name, 0) for name in sorted(after.totals)}
    ended = sum(counts.get(state, 0) for state in ("completed", "failed", "cancelled", "expired"))
    counted = {"submitted": max(0, after.held - before.held + ended), "ended": ended, **counts}
    return {name: round(count / seconds, 2) for name, count in counted.items()}


def show_status(status: QueueStatus, speeds: Mapping[str, float]) -> Group:
    """Draw one partition: its lanes, its other counts, and how many jobs enter and end a second."""
    table = Table(
        Column("lane", overflow="fold"),
        "waiting",
        "in flight",
        "oldest",
        "",
        title=f"partition {status.partition}",
        title_justify="left",
    )
    for lane in status.lanes:
        oldest = "–" if lane.oldest_seconds is None else _lasting(lane.oldest_seconds)
        notes = ", ".join(("paused",) * lane.paused + ("no worker",) * (not lane.served))
        table.add_row(_cell(lane.lane), str(lane.waiting), str(lane.in_flight), oldest, Text(notes, style="yellow"))
    quarantined = ", ".join(f"{kind} {count}" for kind, count in status.quarantined.items())
    beside = Text(
        f"delayed {status.delayed} · quarantined: {quarantined} · dead {status.dead} · workers {status.workers}"
    )
    speed = " · ".join(f"{one_line(name)} {rate:g}/s" for name, rate in speeds.items()) or "no rates yet"
    return Group(table, beside, Text(speed, style="dim"))


def print_models(live: Sequence[LiveModel]) -> None:
    """Print one model a row, with a warning if several models may answer jobs that name none."""
    if not live:
        open_console(stderr=True).print("there is no live worker: start one with `stoop worker`")
        return
    table = Table("model", "workers", "skills", "context", "in flight", "loaded", title="models", title_justify="left")
    for one in live:
        name = _cell(one.name or "(no name)")
        table.add_row(
            name.append(" (default)") if one.default else name,
            str(one.workers),
            _cell(", ".join(one.skills) or "?"),
            str(one.max_context or "?"),
            f"{one.in_flight} of {one.permits}",
            _cell(", ".join(one.loaded) or "?"),
        )
    _print_whole(table)
    if sum(one.default for one in live) > 1:
        open_console(stderr=True).print(
            "Jobs that name no model are answered by any of the default models: "
            "start the workers of all but one with --no-serve-default"
        )


def print_workers(living: Sequence[LivingWorker]) -> None:
    """Print one worker a row."""
    if not living:
        open_console(stderr=True).print("there is no live worker: start one with `stoop worker`")
        return
    columns = ("name", "model", "host", "pid", "lanes", "in_flight", "permits", "version")
    table = Table("worker", *(name.replace("_", " ") for name in columns), title="workers", title_justify="left")
    for one in living:
        table.add_row(_cell(one.worker), *(_cell(_fact_text(one.facts.get(name, "?")), ID_LIMIT) for name in columns))
    _print_whole(table)


def print_letters(letters: Sequence[DeadLetter], now: float) -> None:
    """Print one dead letter a row, newest first; `now` is in Unix seconds."""
    if not letters:
        open_console(stderr=True).print("no dead letters")
        return
    table = Table("letter", "job", "lane", "attempt", "crashes", "age", "failure")
    for one in letters:
        failure = _cell(f"{one.code}: {one.message}", _MESSAGE_WIDTH)
        age = _lasting(max(0.0, now - one.at / 1000))
        table.add_row(one.letter, _cell(one.job_id), _cell(one.lane), str(one.attempt), str(one.crashes), age, failure)
    _print_whole(table)


def print_letter(letter: DeadLetter) -> None:
    """Print all of one dead letter, the job as it came last."""
    out = open_console()
    for name, value in letter_facts(letter).items():
        out.print(Text(f"{name:>8}  ", style="dim").append_text(_cell(value)), soft_wrap=True)


def letter_facts(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON values; `job` is the job's unchanged text."""
    facts = msgspec.structs.asdict(letter)
    facts["job"] = facts.pop("packed").decode(errors="backslashreplace")
    return facts


def _print_whole(table: Table) -> None:
    """Print a table as wide as it is: a narrow terminal wraps its lines, but cuts nothing that users copy."""
    Console(highlight=False, width=_WHOLE_WIDTH).print(table)


def _cell(value: object, width: int | None = None) -> Text:
    return Text(one_line(value, width))


def _fact_text(value: object) -> str:
    if value is None:
        return "–"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _lasting(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
