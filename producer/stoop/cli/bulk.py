"""`stoop bulk`: a skill on every image of a source, results in a folder."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from producer.bulk.arguments import find_arguments
from producer.bulk.budget import Budget, read_budget
from producer.bulk.options import BulkOptions
from producer.bulk.output import Identity
from producer.bulk.plan import Plan, Speed, make_plan, print_plan, probe
from producer.bulk.run import Limits
from producer.bulk.session import Order, check_ask, run_session
from producer.bulk.sources import Source, open_source
from producer.bulk.summary import Summary, print_summary, read_speed
from producer.client import AsyncClient
from producer.config import ProducerConfig
from producer.errors import ConfigError, QueueUnavailable, UploadFailed
from producer.options import with_options
from producer.reporting import FAILED, reported

__all__ = ["bulk"]

_INTERRUPTED = 130
_Connect = Callable[[ProducerConfig], AsyncClient]


@with_options
def bulk(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="s3://bucket/prefix, a folder, or a .jsonl, .csv, .tsv or .parquet file.")
    ],
    *,
    options: BulkOptions,
) -> None:
    """Run a skill on every image of a source. Give the same command again to go on where it stopped."""
    if options.out is None and not options.dry_run:
        raise typer.BadParameter("give --out FOLDER for the results, or --dry-run")
    connect: _Connect = context.obj or AsyncClient
    with reported(as_json=options.json):
        if options.out is not None and options.out.exists() and not options.out.is_dir():
            raise ConfigError(f"{options.out} is a file: give a folder")
        config = ProducerConfig()
        rows = open_source(source, config, column=options.column, match=options.match)
        check_ask(rows, options.ask)
        identity = Identity(rows.facts, options.asked)
        if options.out is None or options.dry_run:
            _show_plan(asyncio.run(_plan(rows, identity, lambda: connect(config), options)), options)
            return
        limits = Limits(options.in_flight, read_budget(options.max_failures), options.rows)
        order = Order(rows, options.ask, options.lane, options.out, identity, limits, options.retry_failed)
        try:
            summary = asyncio.run(_run(order, lambda: connect(config), options))
        except (QueueUnavailable, UploadFailed):
            typer.echo(f"To go on: {_again()}", err=True)
            raise
    _show_summary(summary, options.out, options)
    _end(summary, limits.budget, options.max_failures)


async def _run(order: Order, connect: Callable[[], AsyncClient], options: BulkOptions) -> Summary:
    async with connect() as client:
        return await run_session(order, client, Console(stderr=True, highlight=False), every=options.every)


async def _plan(source: Source, identity: Identity, connect: Callable[[], AsyncClient], options: BulkOptions) -> Plan:
    if options.out is not None:
        find_arguments(options.out, identity.source, identity.asked)
    speed = None if options.rate is None else Speed(options.rate, "as given")
    if options.probe is not None:
        async with connect() as client:
            speed = await probe(source, client, options.ask, lane=options.lane, rows=options.probe)
    if speed is None and options.out is not None:
        speed = read_speed(options.out)
    return await asyncio.to_thread(make_plan, source, options.ask, speed, most=options.rows)


def _show_plan(plan: Plan, options: BulkOptions) -> None:
    if options.json:
        print(msgspec.json.encode(plan).decode())
        return
    print_plan(Console(highlight=False), plan)


def _show_summary(summary: Summary, folder: Path, options: BulkOptions) -> None:
    if options.json:
        print(msgspec.json.encode(summary).decode())
    else:
        print_summary(Console(highlight=False), folder, summary)


def _end(summary: Summary, budget: Budget, most: str) -> None:
    """Say how to go on, and end with the exit code."""
    if summary.stopped == "interrupted":
        typer.echo(f"To go on: {_again()}", err=True)
        raise typer.Exit(_INTERRUPTED)
    if budget.is_spent(summary.failed, summary.completed + summary.failed):
        stopped = "Stopped: m" if summary.stopped else "M"
        typer.echo(f"{stopped}ore than {most} failed. Mend the cause, then: {_again()} --retry-failed", err=True)
        raise typer.Exit(FAILED)


def _again() -> str:
    """Return the command that goes on; what was to be tried again is on its way already."""
    return shlex.join(["stoop", *(word for word in sys.argv[1:] if word != "--retry-failed")])
