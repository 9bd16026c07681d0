"""The operator's verbs on the queue as a whole: look at it, cancel a job, pause and resume a lane."""

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live

from stoop.cli.exit_codes import exit_on_error
from stoop.cli.operator_options import AsJson, Lanes, Partitions, operate, split
from stoop.cli.render_queue import print_json, print_models, print_workers, rates, show_status
from stoop.client.blocking import Client
from stoop.config import ProducerConfig
from stoop.errors import NotFound
from stoop.operator import Operator, QueueStatus
from stoop.terminal import LEAST_WIDTH, one_line, open_console
from stoop_schemas.job import NAME_PATTERN
from stoop_schemas.names import DEFAULT_LANES, is_reserved
from stoop_schemas.state import TERMINAL, State

__all__ = ["cancel", "models", "pause", "resume", "status", "workers"]

_PARTITION = re.compile(r"[0-9]{1,5}")
_Lane = Annotated[str, typer.Argument(help="The lane's name, such as bulk.")]
_Show = Callable[[Sequence[QueueStatus], Sequence[dict[str, float]]], None]


def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option(min=0, help="Seconds between refreshes; rates are computed over them.")
    ] = 1.0,
    lanes: Lanes = "",
    partitions: Partitions = "0",
    json: AsJson = False,
) -> None:
    """Show the lanes: how many jobs wait, run and are dead, the age of the oldest, and the rates."""
    wanted = _numbers(partitions)

    async def follow(operator: Operator, show: _Show) -> None:
        named = {partition: await _lanes_of(operator, lanes, partition) for partition in wanted}

        async def look(operator: Operator) -> list[QueueStatus]:
            return [await operator.status(named[partition], partition) for partition in wanted]

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
    out = open_console()
    if not (watch and _has_room(out)):
        operate(
            context,
            lambda operator: follow(operator, lambda seen, speeds: out.print(_drawn(seen, speeds))),
            as_json=False,
        )
        return
    with Live(console=out, auto_refresh=False) as live:
        operate(
            context,
            lambda operator: follow(operator, lambda seen, speeds: live.update(_drawn(seen, speeds), refresh=True)),
            as_json=False,
        )


async def _lanes_of(operator: Operator, asked: str, partition: int) -> tuple[str, ...]:
    """Return the requested lanes or, if none was requested, every lane, the default ones first."""
    if asked:
        return split(asked)
    return tuple(dict.fromkeys((*split(""), *await operator.lanes(partition))))


def models(context: typer.Context, json: AsJson = False) -> None:
    """List the models that have a live worker: their names, skills and numbers of workers."""
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=json), connect(ProducerConfig()) as client:
        live = client.models()
    if json:
        print_json([asdict(model) for model in live])
    else:
        print_models(live)


def workers(context: typer.Context, partitions: Partitions = "0", json: AsJson = False) -> None:
    """List the live workers."""
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
    """Cancel a job: a waiting one never runs, a running one stops within a step.

    A job put there by a bare XADD is not known before it is claimed: it is cancelled then, and the exit code is 1.
    """
    connect: type[Client] = context.obj or Client
    with exit_on_error(as_json=json), connect(ProducerConfig()) as client:
        before = client.cancel(job_id)
        if before is None:
            raise NotFound(
                f"the queue knows no job {one_line(job_id)}: if a bare XADD put it there, it is cancelled when its turn"
                " comes"
            )
        if before in TERMINAL and before is not State.CANCELLED:
            raise NotFound(f"job {one_line(job_id)} has ended: it is {before}")
    if json:
        print_json({"id": job_id, "was": before, "asked": before not in TERMINAL})
    else:
        typer.echo(f"asked to cancel job {one_line(job_id)} (it was {before})")


def pause(
    context: typer.Context,
    lane: _Lane,
    partitions: Partitions = "0",
    force: Annotated[
        bool, typer.Option("--force", help="Pause the lane even if it is empty and no worker serves it.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Stop workers from claiming from a lane; it still accepts jobs, and those in flight go on."""
    wanted = _numbers(partitions)
    if is_reserved(lane):
        raise typer.BadParameter("the quarantine cannot be paused")
    if not re.fullmatch(NAME_PATTERN, lane):
        raise typer.BadParameter("a lane is named with A-Z a-z 0-9 . _ : -")

    async def pause_lane(operator: Operator) -> bool:
        if not force:
            await _check_lane(operator, lane, wanted)
        return any([await operator.pause(lane, partition) for partition in wanted])

    _print_lane(lane, "paused", operate(context, pause_lane, as_json=json), as_json=json)


def resume(context: typer.Context, lane: _Lane, partitions: Partitions = "0", json: AsJson = False) -> None:
    """Let workers claim from a paused lane again."""
    wanted = _numbers(partitions)

    async def resume_lane(operator: Operator) -> bool:
        changed = any([await operator.resume(lane, partition) for partition in wanted])
        if not changed:
            await _check_lane(operator, lane, wanted)
        return changed

    _print_lane(lane, "open", operate(context, resume_lane, as_json=json), as_json=json)


async def _check_lane(operator: Operator, lane: str, partitions: Sequence[int]) -> None:
    """Raise `NotFound` for a lane that is neither configured nor served by a worker, and that holds nothing."""
    known = {*split(os.environ.get("STOOP_LANES", "")), *DEFAULT_LANES, *ProducerConfig().lanes}
    for partition in partitions:
        served = [worker.facts.get("lanes") for worker in await operator.workers(partition)]
        known.update(str(name) for names in served if isinstance(names, list) for name in names)
        [held] = (await operator.status([lane], partition)).lanes
        if held.waiting or held.in_flight or held.paused:
            return
    if lane not in known:
        near = get_close_matches(lane, known, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise NotFound(f"no worker serves the lane {one_line(lane)}, and it is empty{meant}")


def _print_lane(lane: str, stands: str, changed: bool, *, as_json: bool) -> None:
    if as_json:
        print_json({"lane": lane, "state": stands, "changed": changed})
    else:
        typer.echo(f"lane {one_line(lane)} is {stands}" if changed else f"lane {one_line(lane)} was {stands} already")


def _numbers(partitions: str) -> list[int]:
    numbers = [number.strip() for number in partitions.split(",")]
    if not all(_PARTITION.fullmatch(number) for number in numbers):
        raise typer.BadParameter(f"--partitions takes comma-separated numbers from 0 to 99999, not {partitions!r}")
    return [int(number) for number in numbers]


def _print_status(seen: Sequence[QueueStatus], speeds: Sequence[dict[str, float]]) -> None:
    print_json([{**asdict(status), "rates": speed} for status, speed in zip(seen, speeds, strict=True)])


def _has_room(out: Console) -> bool:
    """Return True if output can be redrawn in place: not in a file, nor on a terminal that is too narrow."""
    return out.is_terminal and Console().width >= LEAST_WIDTH


def _drawn(seen: Sequence[QueueStatus], speeds: Sequence[dict[str, float]]) -> Group:
    return Group(*(show_status(one, speed) for one, speed in zip(seen, speeds, strict=True)))
