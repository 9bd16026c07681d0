"""`stoop bulk-embed`: the vectors of every text of a file, in shards."""

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from stoop.bulk.budget import read_budget
from stoop.bulk.output.output_folder import Identity
from stoop.bulk.progress import TEXTS
from stoop.bulk.run import Limits
from stoop.bulk.session import SessionPlan, check_source, run_session
from stoop.bulk.sources.texts import GroupedTexts, open_texts
from stoop.bulk.summary import Summary, print_summary
from stoop.bulk.vectors.archive import FORMATS, VectorArchive
from stoop.bulk.vectors.options import EmbedOptions, Format
from stoop.bulk.vectors.places import open_place
from stoop.cli.bulk import again, end_bulk
from stoop.cli.exit_codes import exit_on_error
from stoop.cli.skill_options import with_options
from stoop.client.async_client import AsyncClient
from stoop.client.build_job import build_job
from stoop.config import ProducerConfig
from stoop.errors import ConfigError, QueueUnavailable, UploadFailed
from stoop.terminal import open_console
from stoop_schemas.skill import VectorKind

__all__ = ["bulk_embed"]

_Connect = Callable[[ProducerConfig], AsyncClient]


@with_options
def bulk_embed(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A .jsonl, .csv, .tsv or .parquet file of texts.")],
    *,
    options: EmbedOptions,
) -> None:
    """Turn every text of a file into a vector, in shards. Repeat the same command to resume where it stopped.

    For example: stoop bulk-embed texts.parquet --model bge-m3 --out vectors
    """
    connect: _Connect = context.obj or AsyncClient
    with exit_on_error(as_json=options.json):
        if options.out.exists() and not options.out.is_dir():
            raise ConfigError(f"{options.out} is a file: give a folder")
        config = ProducerConfig()
        plan = _plan(source, options, config)
        try:
            summary = asyncio.run(_run(plan, lambda: connect(config), options.every))
        except (QueueUnavailable, UploadFailed):
            typer.echo(f"To resume: {again()}", err=True)
            raise
    if options.json:
        print(msgspec.json.encode(summary).decode())
    else:
        print_summary(open_console(), options.out, summary, TEXTS, place=options.vectors)
    end_bulk(summary, plan.limits.budget, options.max_failures)


def _plan(source: str, options: EmbedOptions, config: ProducerConfig) -> SessionPlan:
    build_job("embed", input=["a text"], **options.ask.fields)  # raises for a mistake in every job
    texts = open_texts(source, options.column)
    check_source(texts)
    if options.format is Format.NPY and options.kind not in (None, [], [VectorKind.DENSE]):
        raise ConfigError("shards as .npy hold dense vectors alone: give --format parquet for other kinds")
    place = open_place(options.vectors, options.out, config)
    return SessionPlan(
        GroupedTexts(texts, options.texts_per_job, options.rows),
        options.ask,
        options.lane,
        options.out,
        Identity(texts.facts, options.asked),
        Limits(options.in_flight, read_budget(options.max_failures), forget=True),
        options.retry_failed,
        VectorArchive(place, FORMATS[options.format], options.out),
        options.shard_rows,
        TEXTS,
    )


async def _run(plan: SessionPlan, connect: Callable[[], AsyncClient], every: float) -> Summary:
    async with connect() as client:
        return await run_session(plan, client, open_console(stderr=True), every=every)
