"""Many silent open streams, and the latency of plain requests meanwhile."""

import asyncio
import time
from typing import Any

from benchmarks.gateway.http_client import Connection
from benchmarks.gateway.latency import measure_latency
from benchmarks.gateway.stack import Stack
from stoop import AsyncClient

__all__ = ["measure_streams"]

_AT_ONCE = 100


async def measure_streams(stack: Stack, count: int) -> dict[str, Any]:
    """Open `count` streams of jobs that no worker runs, and measure memory, CPU and latency with and without them."""
    before = {"megabytes": round(stack.megabytes(), 1), "latency": await measure_latency(stack, 100)}
    connections = [Connection(stack.host, stack.port) for _ in range(count)]
    began = time.perf_counter()
    async with AsyncClient(stack.config) as client:
        jobs = [await client.prepare("query", question="?", stream=True, lane="nobody") for _ in range(count)]
        ids = await client.submit_many(jobs)
    for start in range(0, count, _AT_ONCE):
        part = zip(connections[start : start + _AT_ONCE], ids[start : start + _AT_ONCE], strict=True)
        await asyncio.gather(*(_open(connection, job_id) for connection, job_id in part))
    opened = time.perf_counter() - began
    cpu, began = stack.cpu_seconds(), time.perf_counter()
    await asyncio.sleep(10)
    idle = (stack.cpu_seconds() - cpu) / (time.perf_counter() - began)
    after = {"megabytes": round(stack.megabytes(), 1), "latency": await measure_latency(stack, 100)}
    for connection in connections:
        connection.close()
    figures = {"opened in s": round(opened, 2), "idle cores": round(idle, 3)}
    return {"kind": "gateway streams", "count": count, "before": before, "with": after, **figures}


async def _open(connection: Connection, job_id: str) -> None:
    status, _ = await connection.begin(f"/v1/jobs/{job_id}/events", None, "GET")
    assert status == 200, status
    while not (await connection.line()).startswith(b"data: "):
        pass
