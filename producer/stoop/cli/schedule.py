"""`stoop schedule`: several prompts at once, side by side, through the queue or without one."""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, Final

import typer
from rich.columns import Columns
from rich.console import RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from stoop.cli import render
from stoop.cli.exit_codes import FAILED, USAGE, exit_on_error
from stoop.cli.skill_options import with_options
from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.errors import ConfigError, StoopError
from stoop.terminal import legible, one_line, open_console
from stoop_schemas.failure import Rejected
from stoop_schemas.skill import Settings

__all__ = ["ScheduleOptions", "schedule"]

_GROUP: Final = "stoop.engines"  # opens an engine in this process; the worker's distribution has one
_PANELS: Final = 3  # side by side


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Options that apply to all prompts."""

    image: Annotated[
        list[str] | None, typer.Option(help="An image file or address for all prompts, or one for each, in order.")
    ] = None
    local: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Answer in this process, without a queue, with this model.")
    ] = None
    lane: Annotated[str | None, typer.Option(help="interactive, bulk, or another lane of the workers.")] = None
    model: Annotated[str | None, typer.Option(help="Short name of a model; see `stoop models`.")] = None
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds to wait for each answer.")] = None
    stream: Annotated[bool, typer.Option("--stream", help="Show the answers as they are generated.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each prompt, in order.")] = False
    temperature: Annotated[float | None, typer.Option(help="0 always takes the likeliest token.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Maximum tokens in an answer.")] = None
    seed: Annotated[int | None, typer.Option(help="The same seed repeats the same answers.")] = None
    adapter: Annotated[str | None, typer.Option(help="The id of a LoRA adapter of the worker.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The sampling settings that were given."""
        given = {name: getattr(self, name, None) for name in Settings.__struct_fields__}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(slots=True)
class _Answer:
    """One prompt and its answer so far; `error` says why it failed."""

    prompt: str
    image: str | None
    answer: str = ""
    error: str | None = None
    ended: bool = False


@with_options
def schedule(
    context: typer.Context,
    prompts: Annotated[list[str], typer.Argument(help="The questions, all of which run at the same time.")],
    *,
    options: ScheduleOptions,
) -> None:
    """Answer several questions at once, side by side.

    For example: stoop schedule "How many people?" "Is it raining?" --image photo.jpg --stream
    """
    if options.stream and options.json:
        raise typer.BadParameter("choose --stream or --json")
    if options.local and (options.model or options.lane):
        raise typer.BadParameter("--local has no queue: leave --model and --lane out")
    if options.local and options.adapter:
        raise typer.BadParameter("--local loads no adapters: leave --adapter out")
    answers = [_Answer(*pair) for pair in zip(prompts, _images(prompts, options.image or []), strict=True)]
    connect: type[AsyncClient] = context.obj or AsyncClient
    with exit_on_error(as_json=options.json):
        try:
            asyncio.run(_answer_all(_engine(options, connect), answers, options))
        except Rejected as error:
            raise ConfigError(str(error)) from error
    if options.json:
        for each in answers:
            print(json.dumps({name: value for name, value in asdict(each).items() if name != "ended"}))
    if any(each.error is not None for each in answers):
        raise typer.Exit(FAILED)


def _images(prompts: Sequence[str], images: Sequence[str]) -> Sequence[str | None]:
    if len(images) in (0, 1):
        return [images[0] if images else None] * len(prompts)
    if len(images) != len(prompts):
        raise typer.BadParameter(f"give one --image for all prompts, or {len(prompts)}: there are {len(images)}")
    return images


def _engine(options: ScheduleOptions, connect: type[AsyncClient]) -> AbstractAsyncContextManager[Any]:
    """Return the client, or an engine in this process: both have the method `query`."""
    if options.local is not None:
        engine: AbstractAsyncContextManager[Any] = _local().load()(options.local, timeout=options.timeout)
        return engine
    values = {"lane": options.lane, "job_model": options.model, "timeout_seconds": options.timeout}
    return connect(ProducerConfig().replace(**values))


def _local() -> EntryPoint:
    found = [each for each in entry_points(group=_GROUP) if each.name == "local"]
    if not found:
        typer.echo("stoop schedule --local needs the worker: pip install 'stoop[worker]'", err=True)
        raise typer.Exit(USAGE)
    return found[0]


async def _answer_all(
    opening: AbstractAsyncContextManager[Any], answers: Sequence[_Answer], options: ScheduleOptions
) -> None:
    out = open_console()
    live = Live(console=out, get_renderable=lambda: _panels(answers), auto_refresh=True)
    shown = live if options.stream and sys.stdout.isatty() else None
    async with opening as engine:
        with shown or nullcontext():
            async with asyncio.TaskGroup() as group:
                for each in answers:
                    group.create_task(_answer(engine, each, options, printed=shown is None and not options.json))


async def _answer(engine: Any, each: _Answer, options: ScheduleOptions, *, printed: bool) -> None:
    try:
        found = await engine.query(each.image, each.prompt, stream=options.stream, settings=options.settings)
        if options.stream:
            async for piece in found["answer"]:
                each.answer += piece
        else:
            each.answer = found["answer"]
    except (StoopError, Rejected) as error:
        each.error = str(error)
    each.ended = True
    if printed:
        _print(each)


def _print(each: _Answer) -> None:
    out = open_console()
    out.print(f"> {one_line(each.prompt)}", style="bold", markup=False)
    if each.error is None:
        out.print(legible(each.answer), markup=False)
    else:
        render.print_aside(f"error: {each.error}")


def _panels(answers: Sequence[_Answer]) -> RenderableType:
    width = max(20, open_console().width // min(len(answers), _PANELS) - 1)
    return Columns(
        [
            Panel(
                Text(legible(each.answer) if each.error is None else f"error: {legible(each.error)}"),
                title=Text(one_line(each.prompt, width - 6)),
                width=width,
                border_style="dim" if each.ended else "",
            )
            for each in answers
        ]
    )
