"""What the demo shows: every job's line while it runs, and the table when all have ended."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from producer.demo.burst import Errand
from producer.demo.check import is_right
from producer.events import ending
from producer.render import legible, short_answer
from schemas.event import (
    DeltaEvent,
    Event,
    ObjectEvent,
    ReasoningEvent,
    RestartedEvent,
    StartedEvent,
    TerminalEvent,
)
from schemas.result import Result
from schemas.state import State

__all__ = ["Board", "Line"]

_STYLES = {State.COMPLETED: "green", State.RUNNING: "yellow", State.QUEUED: "dim"}


@dataclass(slots=True)
class Line:
    """One job as it is shown. Times are in seconds of the monotonic clock."""

    number: int
    errand: Errand
    state: State = State.QUEUED
    text: str = ""
    submitted: float | None = None
    ended: float | None = None
    result: Result | None = None

    def tell(self, event: Event) -> None:
        """Take in the next event of the job."""
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
        """How long the job has taken, from its submission."""
        return 0.0 if self.submitted is None else (self.ended or time.monotonic()) - self.submitted

    @property
    def is_right(self) -> bool:
        """Whether the job has ended with the right answer."""
        return self.result is not None and is_right(self.errand, self.result.output)

    @property
    def cells(self) -> tuple[str, ...]:
        """The line's cells in the table."""
        picture = self.errand.picture.name if self.errand.picture else "-"
        tokens = str(self.result.metrics.output_tokens) if self.result else ""
        answer = self.text if self.result else _tail(self.text)
        asked, seconds = self.errand.subject, f"{self.seconds:.2f}"
        return str(self.number), self.errand.skill, asked, picture, self.state, tokens, seconds, answer


class Board:
    """The lines of all jobs, redrawn in place on a terminal; elsewhere one printed line for each job that ends."""

    def __init__(self, errands: Sequence[Errand], console: Console) -> None:
        self.lines = [Line(number, errand) for number, errand in enumerate(errands, start=1)]
        self._console = console
        self._live = Live(get_renderable=self._frame, console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> "Board":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, line: Line, event: Event) -> None:
        """Show the next event of a job."""
        line.tell(event)
        if line.ended is not None and not self._console.is_terminal:
            number, skill, asked, picture, state, tokens, seconds, answer = line.cells
            told = f"job {number} {state} after {seconds} s, {tokens} tokens: {skill} {asked} ({picture}): {answer}"
            self._console.print(Text(told), soft_wrap=True)

    def refresh(self) -> None:
        """Draw the lines now; on a terminal they are drawn a few times a second anyway."""
        self._live.refresh()

    def table(self) -> Table:
        """Return the table of all jobs, with what was expected beside what was answered."""
        table = _columns("answered")
        table.add_column("expected", ratio=2, no_wrap=True)
        table.add_column("right")
        for line in self.lines:
            expected, right = Text(line.errand.truth), "yes" if line.is_right else "no"
            style = _STYLES.get(line.state, "red")
            table.add_row(*map(Text, line.cells), expected, right, style=style if line.is_right else "red")
        return table

    def _frame(self) -> Table:
        # the jobs that move are what one wants to see where not all fit on the screen
        room = max(4, self._console.size.height - 6)
        order = sorted(
            self.lines, key=lambda line: (line.state is not State.RUNNING, line.ended is not None, line.number)
        )
        table = _columns("answer")
        for line in sorted(order[:room], key=lambda line: line.number):
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
    text = legible(" ".join(text.split()))
    return text if len(text) <= width else f"…{text[1 - width :]}"
