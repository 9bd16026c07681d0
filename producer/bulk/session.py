"""One session: everything checked, the run under way, and how it ends."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console

from producer.bulk.flight import SKILLS
from producer.bulk.output import Identity, opened
from producer.bulk.port import Client
from producer.bulk.progress import display_on
from producer.bulk.row import Ask
from producer.bulk.run import Limits, Run
from producer.bulk.sources import Source
from producer.bulk.sources.folder import Folder
from producer.bulk.sources.prefix import Prefix
from producer.bulk.summary import Summary, write_summary
from producer.errors import ConfigError
from producer.jobs import build_job
from schemas.skill import Skill

__all__ = ["Order", "check_ask", "run_session"]

_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run and where to: rows of `source`, each asked `ask`, as jobs of `lane`; results go to `folder`.

    `identity` is what a later session must have in common with this one. With `again` what has failed is tried again.
    """

    source: Source
    ask: Ask
    lane: str
    folder: Path
    identity: Identity
    limits: Limits = field(default_factory=Limits)
    again: bool = False


def check_ask(source: Source, ask: Ask) -> None:
    """Raise `InvalidJob` or `ConfigError` for what would be wrong with every row."""
    image = "s3://bucket/key"
    build_job(Skill.QUERY, image=image, question="?", settings=ask.settings)
    if isinstance(source, Folder | Prefix):  # their rows have nothing of their own
        if ask.skill is None:
            raise ConfigError("give --skill query, caption, detect or point")
        build_job(ask.skill, image=image, settings=ask.settings, **ask.fields)
    for name in ask.fields if ask.skill else ():
        if ask.skill not in SKILLS[name]:
            raise ConfigError(f"--{name} goes with {' and '.join(SKILLS[name])}, not with {ask.skill}")


async def run_session(order: Order, client: Client, console: Console, *, every: float = 10.0) -> Summary:
    """Run what is not done yet, write `summary.json`, and return it.

    SIGINT and SIGTERM end it when the rows in flight are back; a second one ends the process at once. Raises
    `ConfigError`, `QueueUnavailable` or `UploadFailed`; the summary is written all the same.
    """
    with opened(order.folder, order.identity, again=order.again) as output:
        display = display_on(console, every)
        run = Run(order.source, output, display, order.limits)

        def sum_up() -> Summary:
            output.sync()
            summary = Summary.of(order.folder, output.run, output.totals, run.stopped)
            write_summary(order.folder, summary)
            return summary

        def leave() -> None:
            display.close()
            output.flush()
            os._exit(_INTERRUPTED)  # a thread may wait for the store: nobody waits for the thread

        def ask() -> None:
            if run.stop.asked:
                leave()
            run.stop.ask("interrupted")
            display.note(f"waiting for {run.in_flight:,} images in flight; Ctrl-C again leaves at once")

        try:
            async with _signalled(ask):
                await run.go(client, order.ask, order.lane)
        finally:
            display.close()
            summary = sum_up()
        return summary


@contextlib.asynccontextmanager
async def _signalled(tell: Callable[[], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, tell)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
