"""`stoop result`: wait for the answer to an earlier job."""

from typing import Annotated

import typer

from stoop.cli import render
from stoop.cli.exit_codes import exit_on_error
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.errors import NotFound
from stoop_schemas.result import Result

__all__ = ["await_answer", "result", "show_answer"]


def result(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(help="The job's id, as --no-wait printed it.")],
    stream: Annotated[bool, typer.Option("--stream", help="Replay a streamed job's output, then follow it.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, also for errors.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = None,
) -> None:
    """Wait for the answer to an earlier job, and print it.

    Workers keep answers for a day unless configured otherwise.
    """
    if stream and json:
        raise typer.BadParameter("choose --stream or --json")
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=json), connect(ProducerConfig().replace(timeout_seconds=timeout)) as client:
        if client.state(job_id) is None:
            raise NotFound(f"the queue has no job {job_id}, or has dropped it: `stoop status` shows waiting jobs")
        await_answer(client, job_id, stream=stream, as_json=json)


def await_answer(client: Client, job_id: str, *, stream: bool, as_json: bool) -> Result:
    """Print the answer, whole or as it streams. After Ctrl-C, print how to resume or cancel."""
    try:
        return show_answer(client, job_id, stream=stream, as_json=as_json)
    except KeyboardInterrupt:
        render.print_aside(
            f"\njob {job_id} keeps running: `stoop result {job_id}` waits for it, `stoop cancel {job_id}` ends it"
        )
        raise


def show_answer(client: Client, job_id: str, *, stream: bool, as_json: bool = False) -> Result:
    """Wait for the answer and print it, whole or as it streams."""
    if stream:
        render.print_stream(client.stream(job_id, client.config.timeout_seconds))
    answered = client.result(job_id)
    if not stream:
        render.print_result(answered, as_json=as_json)
    elif answered.finish_reason == "length":
        render.print_aside("(the answer is cut at the limit)")
    return answered
