"""The base of the queue's benchmarks: a Redis, the product's client and broker, and a worker without an engine."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis

from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import FinishedEvent
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.broker import Delivery, Settlement
from stoop_worker.jobs.outcome import Completed
from stoop_worker.jobs.redis.broker import RedisBroker
from stoop_worker.jobs.redis.config import BrokerConfig

__all__ = ["BULK", "INTERACTIVE", "Bench", "IdleWorker", "ending", "new_job", "serving"]

INTERACTIVE, BULK = names.DEFAULT_LANES
_PERMITS = 16
_RUN_SECONDS = 0.05
_LIMIT_SECONDS = 120.0
_END_SECONDS = 5.0
_PAUSE_SECONDS = 0.1


class Bench:
    """An empty Redis with a client, a broker and its own statistics."""

    def __init__(self, url: str) -> None:
        self.transport = RedisTransport(url, bounds={BULK: 10_000_000})
        self.broker = RedisBroker(BrokerConfig(url=url, worker="bench", lease=600.0))
        self.redis = Redis.from_url(url, protocol=2)

    async def __aenter__(self) -> "Bench":
        await self.redis.flushall()
        await self.broker.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.broker.close()
        await self.transport.close()
        await self.redis.aclose()

    async def cpu(self) -> float:
        """Return the seconds of CPU that Redis has used."""
        info = await self.redis.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    async def memory(self) -> int:
        """Return the bytes that Redis holds, without its buffer for the append-only file."""
        info = await self.redis.info("memory")
        return int(info["used_memory"]) - int(info["mem_aof_buffer"])

    async def timed(self, count: int, act: Callable[[], Any]) -> tuple[float, float]:
        """Run `act` on `count` jobs; return jobs a second, and Redis's CPU time in µs a job."""
        cpu, began = await self.cpu(), time.perf_counter()
        await act()
        seconds = time.perf_counter() - began
        return count / seconds, 1e6 * (await self.cpu() - cpu) / count


def new_job(number: int, *, lane: str = BULK, tenant: str | None = None) -> Job:
    """Return a job of a typical size."""
    return Job(
        id=names.new_id(), skill=Skill.QUERY, question=f"How many people are in picture {number}?", lane=lane,
        image=f"s3://photos/2026/{number:08}.jpg", tenant=tenant,
    )  # fmt: skip


def ending(delivery: Delivery) -> Settlement:
    """Return the settlement of a delivery as completed."""
    output = Output(answer="Three people.")
    result = Result(id=delivery.job_id, status=State.COMPLETED, skill=Skill.QUERY, output=output)
    event = FinishedEvent(id=delivery.job_id, seq=delivery.next_seq, attempt=delivery.attempt, result=result)
    return Settlement(delivery, Completed(), delivery.next_seq, pack(event), pack(result))


class IdleWorker:
    """A worker without an engine: it claims as many jobs as it has permits, waits, and settles them."""

    def __init__(self, bench: Bench, seen: Callable[[Delivery], None]) -> None:
        self._bench = bench
        self._seen = seen
        self._free = _PERMITS
        self._freed = asyncio.Event()
        self.closed = False
        self.running: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Claim and run until cancelled."""
        while not self.closed:
            self._freed.clear()
            if self._free == 0:
                await self._freed.wait()
            deliveries = await self._bench.broker.take(self._free)
            for delivery in deliveries:
                self._free -= 1
                task = asyncio.create_task(self._run(delivery))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            if not deliveries:
                await self._bench.broker.wait(1.0)

    async def _run(self, delivery: Delivery) -> None:
        self._seen(delivery)
        await asyncio.sleep(_RUN_SECONDS)
        while True:
            try:
                await self._bench.broker.settle([ending(delivery)])
                break
            except QueueUnavailable:
                # Redis stalled, as when it writes gigabytes; the permit must be freed all the same
                await asyncio.sleep(_PAUSE_SECONDS)
        self._free += 1
        self._freed.set()


async def serving(bench: Bench, seen: Callable[[Delivery], None], load: Callable[[], Any]) -> None:
    """Run a worker until the load is done; an error of the worker ends the measurement."""
    worker = IdleWorker(bench, seen)
    working, loading = asyncio.create_task(worker.serve()), asyncio.ensure_future(load())
    done, _ = await asyncio.wait({working, loading}, return_when=asyncio.FIRST_COMPLETED, timeout=_LIMIT_SECONDS)
    worker.closed = True
    left = {working, loading, *worker.running}
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=_END_SECONDS)
    if working in done:
        working.result()
    if loading not in done:
        raise SystemExit("the queue stalled, so the times are not valid")
