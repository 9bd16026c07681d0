"""The plan of a run: its images, bytes, tokens and time, computed before it starts."""

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from stoop.bulk.port import Client
from stoop.bulk.progress import spell_seconds
from stoop.bulk.row import Ask, Row
from stoop.bulk.row_run import check_row, make_job, run_job
from stoop.bulk.sources import Source
from stoop.client.outage import Retrying
from stoop.client.submission import Submitter
from stoop.errors import AudioUnreadable, ConfigError, ImageUnreadable, InvalidJob, JobFailed, StoopError
from stoop.terminal import legible
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics

__all__ = ["Plan", "Speed", "make_plan", "print_plan", "probe"]

_IMAGE_TOKENS: Final = 730
_LETTERS_A_TOKEN: Final = 4
_TEMPLATE_TOKENS: Final = 6
_OUTPUT_TOKENS: Final = {
    "query": 12,
    "caption": 90,
    "short": 25,
    "normal": 90,
    "long": 200,
    "detect": 12,
    "point": 8,
    "chat": 150,
}
"""The tokens of each answer on ordinary photographs, about."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Images a second, the origin of that figure, and the tokens of an answer if they were measured."""

    rate: float
    origin: str
    input_tokens: float | None = None
    output_tokens: float | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The number of rows and their estimated cost. A field that is None is unknown.

    `problems` counts rows that cannot become a job; `problem` is the first one's reason. `bytes` covers the `sized`
    rows, whose size the source knows. `seconds` follows from `rate`, images a second.
    Tokens are estimates, unless they were `measured`.
    """

    rows: int
    problems: int
    problem: str | None
    sized: int
    bytes: int
    input_tokens: int
    output_tokens: int
    measured: bool
    rate: float | None
    rate_from: str | None
    seconds: float | None


@dataclass(slots=True)
class _Sums:
    rows: int = 0
    problems: int = 0
    problem: str | None = None
    sized: int = 0
    bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, row: Row, ask: Ask) -> None:
        self.rows += 1
        try:
            check_row(row, ask)
        except InvalidJob as error:
            self.problems += 1
            self.problem = self.problem or f"{row.name}: {error.failure.message}"
            return
        size = len(row.image) if isinstance(row.image, bytes) else row.bytes
        if size is not None:
            self.sized += 1
            self.bytes += size
        read, written = _estimate(row, ask)
        self.input_tokens += read
        self.output_tokens += written


def make_plan(source: Source, ask: Ask, speed: Speed | None, *, most: int | None = None) -> Plan:
    """Read the whole source, one row at a time, and sum it up. Raises a `StoopError` if it cannot be read."""
    sums = _Sums()
    for row in itertools.islice(source.rows(), most):
        sums.add(row, ask)
    runnable = sums.rows - sums.problems
    measured = speed is not None and speed.output_tokens is not None
    if speed is not None and speed.input_tokens is not None and speed.output_tokens is not None:
        sums.input_tokens, sums.output_tokens = (
            round(speed.input_tokens * runnable),
            round(speed.output_tokens * runnable),
        )
    return Plan(
        rows=sums.rows,
        problems=sums.problems,
        problem=sums.problem,
        sized=sums.sized,
        bytes=sums.bytes,
        input_tokens=sums.input_tokens,
        output_tokens=sums.output_tokens,
        measured=measured,
        rate=round(speed.rate, 3) if speed else None,
        rate_from=speed.origin if speed else None,
        seconds=round(runnable / speed.rate, 3) if speed and speed.rate > 0 else None,
    )


async def probe(source: Source, client: Client, ask: Ask, *, lane: str, rows: int) -> Speed:
    """Run the first rows through the queue, discard the results, and return the speed.

    Raises `QueueUnavailable`, or the rows' own error if none of them can run.
    """
    jobs = []
    refused: StoopError = ConfigError("there is no row to measure")
    for row in await asyncio.to_thread(lambda: list(itertools.islice(source.rows(), rows))):
        if row.problem is None:
            try:
                jobs.append(await make_job(client, row, ask, lane))
            except (InvalidJob, ImageUnreadable, AudioUnreadable) as error:
                refused = error
    if not jobs:
        raise refused
    began, retrying = time.monotonic(), Retrying(needs_answer=True)

    async def metrics(job: Job) -> Metrics | None:
        try:
            return (await run_job(client, submitter, retrying, job)).metrics
        except JobFailed:
            return None

    async with Submitter(client.submit_many, retrying) as submitter:
        spent = [each for each in await asyncio.gather(*map(metrics, jobs)) if each]
    rate = len(jobs) / max(time.monotonic() - began, 1e-3)
    count = max(len(spent), 1)
    return Speed(
        rate,
        f"measured on {len(jobs)} rows",
        sum(each.input_tokens for each in spent) / count,
        sum(each.output_tokens for each in spent) / count,
    )


def print_plan(console: Console, plan: Plan) -> None:
    """Print the plan as a table."""
    about = "" if plan.measured else "about "
    unsized = plan.rows - plan.problems - plan.sized
    size = f"{plan.bytes / 1e6:,.1f} MB" if plan.sized else "not known before they are read"
    lines = {
        "rows": f"{plan.rows:,}" + (f", {plan.problems:,} of them no jobs" if plan.problems else ""),
        **({"such as": legible(plan.problem)} if plan.problem else {}),
        "image bytes": size + (f", and {unsized:,} images of unknown size" if plan.sized and unsized else ""),
        "tokens read": f"{about}{plan.input_tokens:,}",
        "tokens written": f"{about}{plan.output_tokens:,}",
        "rate": "not known: give --rate, or --probe to measure it" if plan.rate is None else _rate(plan),
        "time": "not known" if plan.seconds is None else f"about {spell_seconds(plan.seconds)}",
    }
    table = Table.grid("", "", padding=(0, 2))
    for name, value in lines.items():
        table.add_row(name, escape(value))
    console.print(table)


def _rate(plan: Plan) -> str:
    return f"{plan.rate:.3g} images/s ({plan.rate_from})"


def _estimate(row: Row, ask: Ask) -> tuple[int, int]:
    """Estimate a row's input and output tokens."""
    fields = {**ask.fields, **row.fields}
    skill = row.skill or ask.skill or "query"
    text = str(fields.get("messages") or fields.get("question" if skill == "query" else "object") or "")
    read = _TEMPLATE_TOKENS + len(text) // _LETTERS_A_TOKEN + _IMAGE_TOKENS * len(row.images)
    kind = str(fields.get("length") or "normal") if skill == "caption" else skill
    written = _OUTPUT_TOKENS.get(kind, _OUTPUT_TOKENS["query"])
    most = {**ask.settings, **row.settings}.get("max_tokens")
    return read, min(written, most) if isinstance(most, int) else written
