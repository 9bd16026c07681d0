"""One session: checks everything, runs the rows, and ends the run."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from stoop.bulk.output.archive import Archive
from stoop.bulk.output.output_folder import SHARD_ROWS, Identity, opened
from stoop.bulk.port import Client
from stoop.bulk.progress import IMAGES, Unit, display_on
from stoop.bulk.row import Ask, in_its_field
from stoop.bulk.run import Limits, Run
from stoop.bulk.sources import Source
from stoop.bulk.sources.folder import Folder
from stoop.bulk.sources.prefix import Prefix
from stoop.bulk.sources.source import AUDIO_SUFFIXES
from stoop.bulk.summary import Summary, write_summary
from stoop.client.build_job import build_job
from stoop.errors import ConfigError
from stoop_schemas.skill import Skill
from stoop_schemas.skills import skills, takers_of

__all__ = ["SessionPlan", "check_ask", "check_source", "run_session"]

_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The work of a run: rows of `source`, each asked `ask`, as jobs of `lane`; results go to `folder`.

    A later session must have the same `identity`. With `again`, failed rows are tried again. Full shards of
    `shard_rows` rows move to the `archive`, if there is one. Messages count in the `unit`.
    """

    source: Source
    ask: Ask
    lane: str
    folder: Path
    identity: Identity
    limits: Limits = field(default_factory=Limits)
    again: bool = False
    archive: Archive | None = None
    shard_rows: int = SHARD_ROWS
    unit: Unit = IMAGES


def check_ask(source: Source, ask: Ask, objects: Sequence[str] = ()) -> None:
    """Raise `InvalidJob` or `ConfigError` for a mistake in every row, or in every row of one object."""
    image = "s3://bucket/key"
    build_job(Skill.QUERY, image=image, question="?", settings=ask.settings, model=ask.fields.get("model"))
    if isinstance(source, Folder | Prefix):  # their rows have nothing of their own
        if ask.skill is None:
            raise ConfigError(f"give --skill, one of {', '.join(skills())}")
        build_job(ask.skill, settings=ask.settings, **{**in_its_field(ask.skill, image), **ask.fields})
    for each in objects:
        build_job(Skill.DETECT, image=image, object=each)
    for name in ask.fields if ask.skill else ():
        takers = takers_of(name)
        if takers and ask.skill not in takers:
            raise ConfigError(f"--{name} goes with {' and '.join(takers)}, not with {ask.skill}")


def check_source(source: Source) -> None:
    """Raise `ConfigError` if the source has no row at all, and another `StoopError` if it cannot be read."""
    if next(source.rows(), None) is not None:
        return
    where = source.facts["source"]
    if not isinstance(source, Folder | Prefix):
        raise ConfigError(f"{where} has no rows")
    wanted = f"are like {source.match!r}" if source.match else f"end in {', '.join(source.suffixes)}"
    kind = "recording" if source.suffixes is AUDIO_SUFFIXES else "image"
    raise ConfigError(f"there is no {kind} in {where}: looked for names that {wanted}; --match looks for others")


async def run_session(plan: SessionPlan, client: Client, console: Console, *, every: float = 10.0) -> Summary:
    """Run the rows that are not done yet, write `summary.json`, and return it.

    SIGINT and SIGTERM end it when the rows in flight are back; a second one ends the process at once. Raises
    `ConfigError`, `QueueUnavailable` or `UploadFailed`; the summary is written all the same.
    """
    with opened(
        plan.folder, plan.identity, again=plan.again, shard_rows=plan.shard_rows, archive=plan.archive
    ) as output:
        display = display_on(console, every)
        run = Run(plan.source, output, display, plan.limits, plan.unit)

        def sum_up() -> Summary:
            output.sync()
            summary = Summary.of(plan.folder, output.run, output.totals, run.stopped, output.shards)
            write_summary(plan.folder, summary)
            return summary

        def leave() -> None:
            display.close()
            output.flush()
            os._exit(_INTERRUPTED)  # without waiting for a thread that may wait for the store

        def ask() -> None:
            if run.stop.asked:
                leave()
            run.stop.ask("interrupted")
            display.note(f"waiting for {run.in_flight:,} {plan.unit.in_flight} in flight; Ctrl-C again leaves at once")

        async with _signalled(ask):  # until the summary is written
            try:
                await run.go(client, plan.ask, plan.lane)
            finally:
                display.close()
                summary = sum_up()
        return summary


@contextlib.asynccontextmanager
async def _signalled(on_signal: Callable[[], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
