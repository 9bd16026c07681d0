"""`stoop embed` and `stoop rerank`: texts from the command line, or one a line from the input."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stoop.cli import render
from stoop.cli.exit_codes import exit_on_error
from stoop.cli.result import await_answer
from stoop.cli.skill_options import JobOptions, with_options
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.errors import ConfigError
from stoop_schemas.skill import VectorKind

__all__ = ["EmbedOptions", "embed", "rerank"]

_Truncate = Annotated[bool, typer.Option("--truncate", help="Cut the end of a text that is too long.")]


@dataclass(frozen=True, slots=True)
class EmbedOptions(JobOptions):
    """Options that choose the vectors of texts."""

    prompt_name: Annotated[str | None, typer.Option(help="One of the model's prompts, such as query.")] = None
    dimensions: Annotated[int | None, typer.Option(min=1, help="Shorter vectors, if the model allows them.")] = None
    kind: Annotated[
        list[VectorKind] | None, typer.Option(help="dense (alone by default), sparse or colbert; repeat it for more.")
    ] = None
    truncate: _Truncate = False


@with_options
def embed(
    context: typer.Context,
    texts: Annotated[
        list[str] | None, typer.Argument(help="The texts; without any, one a line from the input.")
    ] = None,
    *,
    options: EmbedOptions,
) -> None:
    """Turn texts into vectors.

    For example: stoop embed "a cat on a mat" "a dog" --model bge-m3 --json
    """
    kinds = [each.value for each in options.kind] if options.kind else None
    fields = {name: getattr(options, name) for name in ("prompt_name", "dimensions", "truncate")}
    _run(context, options, "embed", "input", texts, {**fields, "kinds": kinds})


@with_options
def rerank(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What the documents should answer.")],
    documents: Annotated[
        list[str] | None, typer.Argument(help="The documents; without any, one a line from the input.")
    ] = None,
    truncate: _Truncate = False,
    *,
    options: JobOptions,
) -> None:
    """Score how well documents answer a query.

    For example: stoop rerank "capital of France" "Paris" "Berlin" --model bge-reranker-v2-m3
    """
    _run(context, options, "rerank", "documents", documents, {"query": query, "truncate": truncate})


def _run(
    context: typer.Context,
    options: JobOptions,
    skill: str,
    field: str,
    texts: list[str] | None,
    fields: dict[str, Any],
) -> None:
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=options.json):
        given = texts or _lines()
        config = ProducerConfig().replace(lane=options.lane, job_model=options.model, timeout_seconds=options.timeout)
        with connect(config) as client:
            job_id = client.submit(client.prepare(skill, **{**fields, field: given}))
            if options.no_wait:
                render.print_submitted(job_id, as_json=options.json)
                return
            await_answer(client, job_id, stream=False, as_json=options.json)


def _lines() -> list[str]:
    try:
        return [text for line in sys.stdin if (text := line.strip())]
    except UnicodeDecodeError:
        raise ConfigError("the input is not text in UTF-8") from None
