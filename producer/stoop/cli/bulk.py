"""`stoop bulk`: a skill on every image of a source, results in a folder."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stoop.bulk.arguments import find_arguments
from stoop.bulk.budget import Budget, read_budget
from stoop.bulk.options import BulkOptions
from stoop.bulk.output.output_folder import Identity
from stoop.bulk.plan import Plan, Speed, make_plan, print_plan, probe
from stoop.bulk.progress import IMAGES, RECORDINGS, ROWS, Unit
from stoop.bulk.row import in_its_field
from stoop.bulk.run import Limits
from stoop.bulk.session import SessionPlan, check_ask, check_source, run_session
from stoop.bulk.sources import Source, open_source
from stoop.bulk.sources.each_value import EachValue
from stoop.bulk.sources.source import AUDIO_SUFFIXES, SUFFIXES
from stoop.bulk.summary import Summary, print_summary, read_speed
from stoop.cli.exit_codes import FAILED, exit_on_error
from stoop.cli.skill_options import with_options
from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.errors import ConfigError, QueueUnavailable, UploadFailed
from stoop.terminal import open_console

__all__ = ["again", "bulk", "end_bulk"]

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
    """Run a skill on every image or recording of a source. Repeat the same command to resume where it stopped.

    For example: stoop bulk s3://talks/2026/ --skill transcribe --out talks
    """
    if options.out is None and not options.dry_run:
        raise typer.BadParameter("give --out FOLDER for the results, or --dry-run")
    connect: _Connect = context.obj or AsyncClient
    with exit_on_error(as_json=options.json):
        if options.out is not None and options.out.exists() and not options.out.is_dir():
            raise ConfigError(f"{options.out} is a file: give a folder")
        config = ProducerConfig()
        hears = options.skill is not None and "audio" in in_its_field(options.skill, None)
        suffixes = AUDIO_SUFFIXES if hears else SUFFIXES
        rows = open_source(source, config, column=options.column, match=options.match, suffixes=suffixes)
        check_ask(rows, options.ask, options.objects)
        check_source(rows)
        most = options.rows
        for name, values in options.several.items():
            rows, most = EachValue(rows, options.ask.skill, name, values, most), None
        identity = Identity(rows.facts, options.asked)
        if options.out is None or options.dry_run:
            _show_plan(asyncio.run(_plan(rows, identity, lambda: connect(config), options, most)), options)
            return
        # transcripts are long, so their answers leave Redis as soon as they are on disk
        limits = Limits(options.in_flight, read_budget(options.max_failures), most, forget=hears)
        unit = ROWS if options.several else RECORDINGS if hears else IMAGES
        plan = SessionPlan(
            rows, options.ask, options.lane, options.out, identity, limits, options.retry_failed, unit=unit
        )
        try:
            summary = asyncio.run(_run(plan, lambda: connect(config), options))
        except (QueueUnavailable, UploadFailed):
            typer.echo(f"To resume: {again()}", err=True)
            raise
    _show_summary(summary, options.out, options, unit)
    end_bulk(summary, limits.budget, options.max_failures)


async def _run(plan: SessionPlan, connect: Callable[[], AsyncClient], options: BulkOptions) -> Summary:
    async with connect() as client:
        return await run_session(plan, client, open_console(stderr=True), every=options.every)


async def _plan(
    source: Source, identity: Identity, connect: Callable[[], AsyncClient], options: BulkOptions, most: int | None
) -> Plan:
    if options.out is not None:
        find_arguments(options.out, identity.source, identity.asked)
    speed = None if options.rate is None else Speed(options.rate, "as given")
    if options.probe is not None:
        async with connect() as client:
            speed = await probe(source, client, options.ask, lane=options.lane, rows=options.probe)
    if speed is None and options.out is not None:
        speed = read_speed(options.out)
    return await asyncio.to_thread(make_plan, source, options.ask, speed, most=most)


def _show_plan(plan: Plan, options: BulkOptions) -> None:
    if options.json:
        print(msgspec.json.encode(plan).decode())
        return
    print_plan(open_console(), plan)


def _show_summary(summary: Summary, folder: Path, options: BulkOptions, unit: Unit) -> None:
    if options.json:
        print(msgspec.json.encode(summary).decode())
    else:
        print_summary(open_console(), folder, summary, unit)


def end_bulk(summary: Summary, budget: Budget, most: str) -> None:
    """Print the command that resumes the run, and end with the exit code."""
    if summary.stopped == "interrupted":
        typer.echo(f"To resume: {again()}", err=True)
        raise typer.Exit(_INTERRUPTED)
    if budget.is_spent(summary.failed, summary.completed + summary.failed):
        stopped = "Stopped: m" if summary.stopped else "M"
        typer.echo(f"{stopped}ore than {most} failed. Fix the cause, then: {again()} --retry-failed", err=True)
        raise typer.Exit(FAILED)


def again() -> str:
    """Return the command that resumes the run, without `--retry-failed`, which has taken effect already."""
    return shlex.join(["stoop", *(argument for argument in sys.argv[1:] if argument != "--retry-failed")])
