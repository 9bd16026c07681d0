"""Progress of a run: counts, rates and their display."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from stoop.terminal import legible

__all__ = [
    "IMAGES",
    "RECORDINGS",
    "ROWS",
    "TEXTS",
    "Counts",
    "Display",
    "Plain",
    "Terminal",
    "Unit",
    "display_on",
    "spell_seconds",
]

_RECENT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A row's names in messages: in the plural, in rates, and in flight. `reads` is True if input tokens measure its
    cost.
    """

    plural: str
    short: str
    in_flight: str
    reads: bool = False

    def tokens(self, read: int, written: int) -> int:
        """Return the tokens by which the speed of a run is measured."""
        return read if self.reads else written


IMAGES: Final = Unit("images", "img", "images")
RECORDINGS: Final = Unit("recordings", "recordings", "recordings")
ROWS: Final = Unit("rows", "rows", "rows")
TEXTS: Final = Unit("texts", "texts", "jobs", reads=True)


@dataclass(slots=True)
class Counts:
    """Progress counts: rows that ended in this session, and rows `skipped` because earlier sessions finished them.

    `total` is None until it is known. The rates cover the last half minute.
    """

    done: int = 0
    failed: int = 0
    skipped: int = 0
    tokens: int = 0
    total: int | None = None
    unit: Unit = IMAGES
    began: float = field(default_factory=time.monotonic)
    _seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    @property
    def ended(self) -> int:
        """Rows that ended in this session."""
        return self.done + self.failed

    @property
    def seconds(self) -> float:
        """Seconds since this session started."""
        return time.monotonic() - self.began

    def look(self) -> None:
        """Record the current counts, from which the rates are computed."""
        now = time.monotonic()
        self._seen.append((now, self.ended, self.tokens))
        while now - self._seen[0][0] > _RECENT_SECONDS:
            self._seen.popleft()

    @property
    def rates(self) -> tuple[float, float]:
        """Rows a second and tokens a second."""
        then, ended, tokens = self._seen[0] if len(self._seen) > 1 else (self.began, 0, 0)
        seconds = max(time.monotonic() - then, 1e-3)
        return (self.ended - ended) / seconds, (self.tokens - tokens) / seconds

    def __str__(self) -> str:
        ended, tokens = self.rates
        behind = self.skipped + self.ended
        of = "" if self.total is None else f" of {self.total:,} ({behind / max(self.total, 1):.0%})"
        failed, skipped = f", {self.failed:,} failed", f", {self.skipped:,} done before" if self.skipped else ""
        left = None if self.total is None or not ended else (self.total - behind) / ended
        eta = "" if left is None else f", {spell_seconds(max(left, 0))} left"
        return f"{behind:,}{of}{failed}{skipped} · {ended:.1f} {self.unit.short}/s, {tokens:,.0f} tok/s{eta}"


class Display(Protocol):
    """Shows the progress of a run."""

    def show(self, counts: Counts) -> None:
        """Show the counts; called a few times a second."""

    def note(self, text: str) -> None:
        """Show a line of text; a repeat of the same line is shown only once."""

    def close(self) -> None:
        """Leave the terminal as it was; idempotent."""


class Plain:
    """A line every few seconds, for a log."""

    def __init__(self, console: Console, every: float) -> None:
        self._console = console
        self._every = every
        self._next = 0.0
        self._noted = ""
        self._held: str | None = None

    def show(self, counts: Counts) -> None:
        """Print a line if it is time for one."""
        self._held = str(counts)
        if counts.seconds >= self._next:
            self._next = counts.seconds + self._every
            self._print_held()

    def note(self, text: str) -> None:
        """Print the line."""
        if text != self._noted:
            self._noted = text
            _print(self._console, text)

    def close(self) -> None:
        """Print the final counts, unless they were the last line."""
        self._print_held()

    def _print_held(self) -> None:
        if self._held is not None:
            _print(self._console, self._held)
        self._held = None


class Terminal:
    """A progress bar, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(BarColumn(bar_width=24), TextColumn("{task.description}", markup=False), console=console)
        self._task: TaskID = self._bar.add_task("", total=None)
        self._noted = ""
        self._bar.start()

    def show(self, counts: Counts) -> None:
        """Draw the bar."""
        behind = counts.skipped + counts.ended
        self._bar.update(self._task, total=counts.total, completed=behind, description=str(counts))

    def note(self, text: str) -> None:
        """Print the line above the bar."""
        if text != self._noted:
            self._noted = text
            _print(self._console, text)

    def close(self) -> None:
        """Stop drawing."""
        self._bar.stop()


def display_on(console: Console, every: float) -> Display:
    """Return a bar for a terminal; for anything else, plain lines every `every` seconds."""
    return Terminal(console) if console.is_terminal else Plain(console, every)


def spell_seconds(seconds: float) -> str:
    """Return a duration as readable text, such as 3 h 05 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _print(console: Console, text: str) -> None:
    console.print(legible(text), markup=False, highlight=False, soft_wrap=True)
