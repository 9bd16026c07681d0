"""Both ports together: workers that come and go, and a producer that receives each event exactly once."""

import asyncio
import random

from stoop.client.transport import Transport
from stoop_schemas.state import State
from stoop_worker.jobs.broker import Broker, Delivery, EventGroup
from stoop_worker.jobs.outcome import Completed, Released
from tests.contract.queues import QueueUnderTest, ending, new_job

JOBS, WORKERS, PERMITS = 60, 3, 5


async def test_every_job_of_many_workers_is_answered_once(queue: QueueUnderTest, transport: Transport) -> None:
    rng = random.Random(7)
    jobs = [new_job(lane=rng.choice(("interactive", "bulk"))) for _ in range(JOBS)]
    stories = [asyncio.create_task(_hear(transport, job.id)) for job in jobs]
    settled: dict[str, int] = {}
    workers = [asyncio.create_task(_work(queue.broker(f"worker-{i}"), settled, rng)) for i in range(WORKERS)]
    for start in range(0, JOBS, 20):
        await transport.submit(jobs[start : start + 20])
    async with asyncio.timeout(30.0):
        heard = await asyncio.gather(*stories)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert settled == {job.id: 1 for job in jobs}
    for job, story in zip(jobs, heard, strict=True):
        assert story == await transport.log(job.id), "heard in order, whole and once"
        assert story[-1] == b"last of " + job.id.encode()
        assert await transport.state(job.id) == State.COMPLETED
    assert await queue.depth("interactive") == await queue.depth("bulk") == 0


async def _hear(transport: Transport, job_id: str) -> list[bytes]:
    """Follow a job as a client does: subscribe, read the log, drop repeated events."""
    last = b"last of " + job_id.encode()
    async with transport.subscribe(job_id) as published:
        heard = await transport.log(job_id)
        while not heard or heard[-1] != last:
            packed = await anext(published)
            if packed is None:
                heard += await transport.log(job_id, after=len(heard) - 1)
            elif packed not in heard:
                heard.append(packed)
    return heard


async def _work(broker: Broker, settled: dict[str, int], rng: random.Random) -> None:
    await broker.open()
    while True:
        deliveries = await broker.take(PERMITS)
        assert len(deliveries) <= PERMITS
        if not deliveries:
            await broker.wait(0.2)
            continue
        groups = [EventGroup(one, one.next_seq, _events(one)) for one in deliveries]
        assert all(await broker.append(groups))
        outcomes = [Released() if rng.random() < 0.2 else Completed() for _ in deliveries]
        ends = [ending(one, outcome, one.next_seq + 2) for one, outcome in zip(deliveries, outcomes, strict=True)]
        for one, outcome, ours in zip(deliveries, outcomes, await broker.settle(ends), strict=True):
            if ours and isinstance(outcome, Completed):
                settled[one.job_id] = settled.get(one.job_id, 0) + 1


def _events(delivery: Delivery) -> tuple[bytes, bytes]:
    return tuple(f"{delivery.entry_id} says {i}".encode() for i in (1, 2))  # type: ignore[return-value]
