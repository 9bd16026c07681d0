"""The operator's verbs on the queue as a whole: look at it, cancel a job, pause and resume a lane."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live

from producer.blocking import Client
from producer.config import ProducerConfig
from producer.errors import NotFound
from producer.operator import Operator, QueueStatus
from producer.operator_options import AsJson, Lanes, Partitions, operate, split
from producer.render_queue import print_json, print_workers, rates, show_status, spelled
from producer.reporting import reported
from schemas.state import TERMINAL, State

__all__ = ["cancel", "pause", "resume", "status", "workers"]

_ALL_LANES = ",".join(split(""))
_Lane = Annotated[str, typer.Argument(help="The lane's name, such as bulk.")]
_Show = Callable[[Sequence[QueueStatus], Sequence[dict[str, float]]], None]


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between two looks, of which rates are made.")] = 1.0,
    lanes: Lanes = _ALL_LANES,
    partitions: Partitions = "0",
    json: AsJson = False,
) -> None:
    """Show the lanes: how many jobs wait, run and have died, how old the oldest is, and how fast they come and go."""
    wanted = _numbers(partitions)

    async def look(operator: Operator) -> list[QueueStatus]:
        return [await operator.status(split(lanes), partition) for partition in wanted]

    async def follow(operator: Operator, show: _Show) -> None:
        seen = await look(operator)
        if watch or not interval:
            show(seen, [{} for _ in seen])
        while watch or interval:
            await asyncio.sleep(interval)
            before, seen = seen, await look(operator)
            show(seen, [rates(one, other) for one, other in zip(before, seen, strict=True)])
            if not watch:
                return

    if json:
        operate(context, lambda operator: follow(operator, _print_status), as_json=True)
        return
    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        operate(context, lambda operator: follow(operator, _drawn_on(live)), as_json=False)


def workers(context: typer.Context, partitions: Partitions = "0", json: AsJson = False) -> None:
    """List the workers whose lease runs."""
    wanted = _numbers(partitions)

    async def look(operator: Operator) -> list[Any]:
        return [worker for partition in wanted for worker in await operator.workers(partition)]

    living = operate(context, look, as_json=json)
    if json:
        print_json([asdict(worker) for worker in living])
    else:
        print_workers(living)


def cancel(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(help="The job's id.")],
    json: AsJson = False,
) -> None:
    """Ask for the end of a job: a waiting one does not run, a running one stops within a step.

    A job put there by a bare XADD is not known before it is claimed: it is cancelled then.
    """
    connect: type[Client] = context.obj or Client
    with reported(as_json=json), connect(ProducerConfig()) as client:
        before = client.cancel(job_id)
        if before in TERMINAL and before is not State.CANCELLED:
            raise NotFound(f"job {spelled(job_id)} has ended: it is {before}")
    if json:
        print_json({"id": job_id, "was": before, "asked": before not in TERMINAL})
    else:
        was = f"it was {before}" if before else "the queue does not know it yet"
        typer.echo(f"asked for the end of job {spelled(job_id)} ({was})")


def pause(context: typer.Context, lane: _Lane, partitions: Partitions = "0", json: AsJson = False) -> None:
    """Let no worker claim from a lane; jobs can still be submitted to it, and those in flight go on."""
    _turn(context, lane, partitions, as_json=json, verb="pause")


def resume(context: typer.Context, lane: _Lane, partitions: Partitions = "0", json: AsJson = False) -> None:
    """Let workers claim from a paused lane again."""
    _turn(context, lane, partitions, as_json=json, verb="resume")


def _turn(context: typer.Context, lane: str, partitions: str, *, as_json: bool, verb: str) -> None:
    wanted = _numbers(partitions)

    async def turn(operator: Operator) -> bool:
        change = operator.pause if verb == "pause" else operator.resume
        return any([await change(lane, partition) for partition in wanted])

    changed = operate(context, turn, as_json=as_json)
    stands = "paused" if verb == "pause" else "open"
    if as_json:
        print_json({"lane": lane, "state": stands, "changed": changed})
    else:
        typer.echo(f"lane {spelled(lane)} is {stands}" if changed else f"lane {spelled(lane)} was {stands} already")


def _numbers(partitions: str) -> list[int]:
    try:
        return [int(number) for number in partitions.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--partitions takes numbers with commas between them, not {partitions!r}") from None


def _print_status(seen: Sequence[QueueStatus], told: Sequence[dict[str, float]]) -> None:
    print_json([{**asdict(status), "rates": speed} for status, speed in zip(seen, told, strict=True)])


def _drawn_on(live: Live) -> _Show:
    def draw(seen: Sequence[QueueStatus], told: Sequence[dict[str, float]]) -> None:
        live.update(Group(*(show_status(one, speed) for one, speed in zip(seen, told, strict=True))), refresh=True)

    return draw
