"""The same questions by `AsyncClient` and by HTTP, in turn: what does the gateway add?"""

import time
from statistics import quantiles
from typing import Any

from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.stack import Stack
from stoop import AsyncClient, DeltaEvent

__all__ = ["QUESTION", "first_piece", "measure_latency", "summary"]

QUESTION = "one\ntwo\nthree\n"


async def measure_latency(stack: Stack, count: int) -> dict[str, Any]:
    """Return the median and p95 of both, in milliseconds, for whole answers and for first pieces."""
    connection = Connection(stack.host, stack.port)
    found: dict[str, list[float]] = {name: [] for name in ("client", "http", "client first", "http first")}
    async with AsyncClient(stack.config) as client:
        for number in range(count + count // 10):
            kept = found if number >= count // 10 else {name: [] for name in found}
            began = time.perf_counter()
            await client.query(question=QUESTION)
            kept["client"].append(time.perf_counter() - began)
            kept["http"].append((await connection.ask("/v1/query", {"question": QUESTION})).whole)
            kept["client first"].append(await first_piece(client))
            streamed = await connection.ask("/v1/query", {"question": QUESTION, "stream": True})
            kept["http first"].append(streamed.first)
    connection.close()
    table = {name: summary(seconds) for name, seconds in found.items()}
    added = {
        "added p50 ms": round(table["http"]["p50"] - table["client"]["p50"], 2),
        "added first piece p50 ms": round(table["http first"]["p50"] - table["client first"]["p50"], 2),
    }
    return {"kind": "gateway latency", "count": count, **table, **added}


async def first_piece(client: AsyncClient) -> float:
    """Return the seconds until the first piece of a stream."""
    began = time.perf_counter()
    job = await client.prepare("query", question=QUESTION, stream=True)
    first = 0.0
    async for event in client.stream(await client.submit(job)):
        if isinstance(event, DeltaEvent):
            first = first or time.perf_counter() - began
    return first


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the median and p95, in milliseconds."""
    cuts = quantiles(seconds, n=20)
    return {"p50": round(1000 * cuts[9], 2), "p95": round(1000 * cuts[18], 2)}
