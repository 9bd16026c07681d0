"""Options shared by the operator's commands: the queue, the part of it, and a connection for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from stoop.cli.exit_codes import exit_on_error
from stoop.config import ProducerConfig
from stoop.operator import Operator
from stoop_schemas.names import DEFAULT_LANES

__all__ = ["AsJson", "Lanes", "Partition", "Partitions", "operate", "split"]

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, also for errors.")]
Lanes = Annotated[str, typer.Option(help="Lanes to show (comma-separated); by default all.")]
Partitions = Annotated[str, typer.Option(envvar="STOOP_PARTITIONS", help="Partitions to show (comma-separated).")]
Partition = Annotated[int, typer.Option(min=0, max=99_999, help="The partition to use.")]


def split(names: str) -> tuple[str, ...]:
    """Split a list at its commas; without one, return the default lanes."""
    return tuple(name.strip() for name in names.split(",") if name.strip()) or DEFAULT_LANES


def operate(context: typer.Context, act: Callable[[Operator], Awaitable[_T]], *, as_json: bool) -> _T:
    """Connect as configured, act, disconnect; an error is exit_on_error and ends the command."""
    connect: Callable[[ProducerConfig], Operator] = context.obj or _connect

    async def run() -> _T:
        operator = connect(ProducerConfig())
        try:
            return await act(operator)
        finally:
            await operator.close()

    with exit_on_error(as_json=as_json):
        return asyncio.run(run())


def _connect(config: ProducerConfig) -> Operator:
    from stoop.operator.redis_operator import RedisOperator

    return RedisOperator(config.redis_url.get_secret_value())
