"""The demo's display: a line for each job while it runs, and a table at the end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stoop.client.events import ending
from stoop.demo.burst import DemoJob
from stoop.demo.check import is_right
from stoop.short_answer import short_answer
from stoop.terminal import one_line
from stoop_schemas.event import (
    DeltaEvent,
    Event,
    ObjectEvent,
    ReasoningEvent,
    RestartedEvent,
    StartedEvent,
    TerminalEvent,
)
from stoop_schemas.result import Result
from stoop_schemas.state import State

__all__ = ["Board", "Line"]

_STYLES = {State.COMPLETED: "green", State.RUNNING: "yellow", State.QUEUED: "dim"}


@dataclass(slots=True)
class Line:
    """One job's line on the display. Times are in seconds of the monotonic clock."""

    number: int
    job: DemoJob
    state: State = State.QUEUED
    text: str = ""
    submitted: float | None = None
    ended: float | None = None
    result: Result | None = None

    def update(self, event: Event) -> None:
        """Update the line with the job's next event."""
        if isinstance(event, StartedEvent | RestartedEvent):
            self.state, self.text = State.RUNNING, ""
        elif isinstance(event, DeltaEvent | ReasoningEvent):
            self.text += event.text
        elif isinstance(event, ObjectEvent):
            self.text += "(" + ", ".join(f"{value:.2f}" for value in event.object.values()) + ") "
        elif isinstance(event, TerminalEvent):
            self.result, self.ended = ending(event), time.monotonic()
            self.state, self.text = self.result.status, short_answer(self.result, 120)

    @property
    def seconds(self) -> float:
        """Seconds from the job's submission to its end, or to now while it runs."""
        return 0.0 if self.submitted is None else (self.ended or time.monotonic()) - self.submitted

    @property
    def is_right(self) -> bool:
        """True if the job has ended with the right answer."""
        return self.result is not None and is_right(self.job, self.result.output)

    @property
    def cells(self) -> tuple[str, ...]:
        """The line's cells in the table."""
        picture = self.job.picture.name if self.job.picture else "-"
        tokens = str(self.result.metrics.output_tokens) if self.result else ""
        answer = self.text if self.result else _tail(self.text)
        asked, seconds = self.job.subject, f"{self.seconds:.2f}"
        return str(self.number), self.job.skill, asked, picture, self.state, tokens, seconds, answer


class Board:
    """The lines of all jobs, redrawn in place on a terminal; elsewhere one printed line for each job that ends."""

    def __init__(self, jobs: Sequence[DemoJob], console: Console) -> None:
        self.lines = [Line(number, job) for number, job in enumerate(jobs, start=1)]
        self._console = console
        self._live = Live(get_renderable=self._frame, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> "Board":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, line: Line, event: Event) -> None:
        """Show the next event of a job."""
        line.update(event)
        if line.ended is not None and not self._console.is_terminal:
            number, skill, asked, picture, state, tokens, seconds, answer = line.cells
            summary = f"job {number} {state} after {seconds} s, {tokens} tokens: {skill} {asked} ({picture}): {answer}"
            self._console.print(Text(summary), soft_wrap=True)

    def refresh(self) -> None:
        """Draw the lines now; on a terminal they are drawn a few times a second anyway."""
        self._live.refresh()

    def table(self) -> Table:
        """Return the table of all jobs, with the expected and the actual answers side by side."""
        table = _columns("answered")
        table.add_column("expected", ratio=2, no_wrap=True)
        table.add_column("right")
        for line in self.lines:
            expected, right = Text(line.job.truth), "yes" if line.is_right else "no"
            style = _STYLES.get(line.state, "red")
            table.add_row(*map(Text, line.cells), expected, right, style=style if line.is_right else "red")
        return table

    def _frame(self) -> Table:
        # if not all jobs fit on the screen, show those that are making progress
        room = max(4, self._console.size.height - 6)
        by_progress = sorted(
            self.lines, key=lambda line: (line.state is not State.RUNNING, line.ended is not None, line.number)
        )
        table = _columns("answer")
        for line in sorted(by_progress[:room], key=lambda line: line.number):
            table.add_row(*map(Text, line.cells), style=_STYLES.get(line.state, "red"))
        return table


def _columns(answer: str) -> Table:
    table = Table("job", "skill", expand=True)
    table.add_column("asked", ratio=2, no_wrap=True)
    table.add_column("image", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("tokens", justify="right")
    table.add_column("s", justify="right")
    table.add_column(answer, ratio=3, no_wrap=True)
    return table


def _tail(text: str, width: int = 40) -> str:
    text = one_line(" ".join(text.split()))
    return text if len(text) <= width else f"…{text[1 - width :]}"
