"""`stoop result`: wait for the answer of a job that was submitted before."""

from typing import Annotated

import typer

from producer import render
from producer.blocking import Client
from producer.config import ProducerConfig
from producer.errors import NotFound
from producer.reporting import reported
from schemas.result import Result

__all__ = ["await_answer", "result"]


def result(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(help="The job's id, as --no-wait printed it.")],
    stream: Annotated[bool, typer.Option("--stream", help="Show what a streamed job has told, and go on.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for errors too.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait for the answer.")] = None,
) -> None:
    """Wait for the answer of a job that was submitted before, and print it.

    Answers are kept for a day, unless the workers are told otherwise.
    """
    if stream and json:
        raise typer.BadParameter("choose --stream or --json")
    connect: type[Client] = context.obj or Client
    with reported(as_json=json), connect(ProducerConfig().replace(timeout_seconds=timeout)) as client:
        if client.state(job_id) is None:
            raise NotFound(f"the queue knows no job {job_id}, or not any more: `stoop status` shows what waits")
        await_answer(client, job_id, stream=stream, as_json=json)


def await_answer(client: Client, job_id: str, *, stream: bool, as_json: bool) -> Result:
    """Print the answer when it comes, or as it comes; who breaks off is told how to go on."""
    try:
        if stream:
            render.print_stream(client.stream(job_id, client.config.timeout_seconds))
        answered = client.result(job_id)
    except KeyboardInterrupt:
        render.print_aside(
            f"\njob {job_id} goes on: `stoop result {job_id}` waits for it, `stoop cancel {job_id}` ends it"
        )
        raise
    if not stream:
        render.print_result(answered, as_json=as_json)
    return answered
