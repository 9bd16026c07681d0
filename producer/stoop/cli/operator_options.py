"""What the operator's commands share: where the queue is, which part of it, and a connection for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from producer.config import ProducerConfig
from producer.operator import Operator
from producer.reporting import reported
from schemas.names import DEFAULT_LANES

__all__ = ["AsJson", "Lanes", "Partition", "Partitions", "operate", "split"]

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for errors too.")]
Lanes = Annotated[str, typer.Option(envvar="STOOP_LANES", help="Lanes to look at (comma-separated).")]
Partitions = Annotated[str, typer.Option(envvar="STOOP_PARTITIONS", help="Partitions to look at (comma-separated).")]
Partition = Annotated[int, typer.Option(min=0, max=99_999, help="The partition to look at.")]


def split(names: str) -> tuple[str, ...]:
    """Split what was given with commas; the default lanes where nothing was."""
    return tuple(name.strip() for name in names.split(",") if name.strip()) or DEFAULT_LANES


def operate(context: typer.Context, act: Callable[[Operator], Awaitable[_T]], *, as_json: bool) -> _T:
    """Connect as the configuration says, act, disconnect; what goes wrong is reported and ends the command."""
    connect: Callable[[ProducerConfig], Operator] = context.obj or _connect

    async def run() -> _T:
        operator = connect(ProducerConfig())
        try:
            return await act(operator)
        finally:
            await operator.close()

    with reported(as_json=as_json):
        return asyncio.run(run())


def _connect(config: ProducerConfig) -> Operator:
    from producer.operator.redis_operator import RedisOperator

    return RedisOperator(config.redis_url.get_secret_value())
