"""The gateway's memory over many requests, plain and streamed ones in turn."""

import asyncio
import itertools
from typing import Any, Final

from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.stack import Stack

__all__ = ["measure_memory"]

_CALLERS: Final = 64
_LOOKS: Final = 10


async def measure_memory(stack: Stack, count: int) -> dict[str, Any]:
    """Return the gateway's resident megabytes after each tenth of the requests, every fifth of them a stream."""
    megabytes = [round(stack.megabytes(), 1)]
    numbers = itertools.count()
    cpu = stack.cpu_seconds()
    for look in range(_LOOKS):
        last = count * (look + 1) // _LOOKS
        await asyncio.gather(*(_ask(stack, numbers, last) for _ in range(_CALLERS)))
        megabytes.append(round(stack.megabytes(), 1))
    return {
        "kind": "gateway memory",
        "count": count,
        "megabytes": megabytes,
        "requests per core second": round(count / (stack.cpu_seconds() - cpu)),
    }


async def _ask(stack: Stack, numbers: "itertools.count[int]", last: int) -> None:
    connection = Connection(stack.host, stack.port)
    while (number := next(numbers)) < last:
        # an answer of its own for each, as callers have
        body = {"question": f"one\ntwo\nthree {number}\n", "stream": number % 5 == 0}
        answered = await connection.ask("/v1/query", body)
        assert answered.status == 200, answered
    connection.close()
