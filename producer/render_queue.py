"""What an operator reads: tables for people, JSON for programs.

Dead letters and registry entries were written by others, so nothing of them reaches a terminal as it is: control
characters (which move cursors and forge lines) are spelled out, and no markup is read in them.
"""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from producer.operator import DeadLetter, LivingWorker, QueueStatus

__all__ = [
    "letter_facts",
    "print_json",
    "print_letter",
    "print_letters",
    "print_workers",
    "rates",
    "show_status",
    "spelled",
]

_MESSAGE_WIDTH = 60


def spelled(said: object, width: int | None = None) -> Text:
    """Return text that shows what was said and does nothing else: control characters as escapes, cut to `width`."""
    shown = "".join(letter if _harmless(letter) else letter.encode("unicode_escape").decode() for letter in str(said))
    return Text(shown if width is None or len(shown) <= width else f"{shown[: width - 1]}…")


def print_json(told: object) -> None:
    """Print one line of JSON; all but ASCII is escaped, so that it too is safe to look at."""
    print(json.dumps(told))


def rates(before: QueueStatus, after: QueueStatus) -> dict[str, float]:
    """Say how many jobs a second came (`submitted`) and how many ended (by state), between two looks."""
    seconds = (after.at - before.at) / 1000
    if seconds <= 0:
        return {}
    told = {name: after.totals[name] - before.totals.get(name, 0) for name in sorted(after.totals)}
    ended = sum(told.get(state, 0) for state in ("completed", "failed", "cancelled", "expired"))
    counted = {"submitted": max(0, after.held - before.held + ended), "ended": ended, **told}
    return {name: round(count / seconds, 2) for name, count in counted.items()}


def show_status(status: QueueStatus, told: Mapping[str, float]) -> Group:
    """Draw one partition: its lanes, what lies beside them, and how many jobs a second come and go."""
    table = Table(
        "lane", "waiting", "in flight", "oldest", "", title=f"partition {status.partition}", title_justify="left"
    )
    for lane in status.lanes:
        oldest = "–" if lane.oldest_seconds is None else _lasting(lane.oldest_seconds)
        paused = Text("paused", style="yellow") if lane.paused else ""
        table.add_row(spelled(lane.lane), str(lane.waiting), str(lane.in_flight), oldest, paused)
    quarantined = ", ".join(f"{kind} {count}" for kind, count in status.quarantined.items())
    beside = Text(
        f"delayed {status.delayed} · quarantined: {quarantined} · dead {status.dead} · workers {status.workers}"
    )
    speed = " · ".join(f"{spelled(name)} {rate:g}/s" for name, rate in told.items()) or "no rates yet"
    return Group(table, beside, Text(speed, style="dim"))


def print_workers(living: Sequence[LivingWorker]) -> None:
    """Print one worker a row."""
    if not living:
        Console(stderr=True).print("no worker's lease runs: start one with `stoop worker`")
        return
    columns = ("host", "pid", "model", "lanes", "in_flight", "permits", "version")
    table = Table("worker", *(name.replace("_", " ") for name in columns), title="workers", title_justify="left")
    for one in living:
        table.add_row(spelled(one.worker), *(spelled(_told(one.facts.get(name, "?")), 40) for name in columns))
    Console(highlight=False).print(table)


def print_letters(letters: Sequence[DeadLetter], now: float) -> None:
    """Print one dead letter a row, newest first; `now` is in Unix seconds."""
    if not letters:
        Console(stderr=True).print("no dead letters")
        return
    table = Table("letter", "job", "lane", "attempt", "crashes", "age", "failure")
    for one in letters:
        failure = spelled(f"{one.code}: {one.message}", _MESSAGE_WIDTH)
        age = _lasting(max(0.0, now - one.at / 1000))
        table.add_row(
            one.letter, spelled(one.job_id), spelled(one.lane), str(one.attempt), str(one.crashes), age, failure
        )
    Console(highlight=False).print(table)


def print_letter(letter: DeadLetter) -> None:
    """Print all of one dead letter, the job as it came last."""
    out = Console(highlight=False)
    for name, value in letter_facts(letter).items():
        out.print(Text(f"{name:>8}  ", style="dim").append_text(spelled(value)), soft_wrap=True)


def letter_facts(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as JSON can say it: `job` is the text of the job as it came."""
    told = asdict(letter)
    told["job"] = told.pop("packed").decode(errors="backslashreplace")
    return told


def _harmless(letter: str) -> bool:
    # category C: control, format (which turns the direction of text), surrogates, private use, unassigned
    return not unicodedata.category(letter).startswith("C")


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _lasting(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
