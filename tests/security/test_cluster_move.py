"""A Cluster that moves the queue's slot to another node and back, under a worker that has jobs all the time."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from structlog.testing import capture_logs

from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.broker import Delivery, EventGroup
from stoop_worker.jobs.redis.broker import BrokerConfig, RedisBroker
from stoop_worker.jobs.redis.client import RedisClient
from tests.contract.queues import ending, new_job
from tests.security.redis_process import SlotMove, meet, running_cluster, running_node, running_two_nodes

SOON = 60.0


class Worker:
    """Makes all of a worker's calls to its broker, and keeps the ended jobs; it goes on while Redis is away."""

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker
        self._held: list[Delivery] = []
        self.ended: list[str] = []
        self.outages = 0
        self.round = asyncio.Condition()

    async def run(self) -> None:
        while True:
            try:
                await self._round()
            except QueueUnavailable:
                self.outages += 1
                await asyncio.sleep(0.01)
            async with self.round:
                self.round.notify_all()

    async def until_ended(self, count: int) -> None:
        await self._until(lambda: len(self.ended) >= count)

    async def until_an_outage(self) -> None:
        seen = self.outages
        await self._until(lambda: self.outages > seen)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON), self.round:
            await self.round.wait_for(reached)

    async def _round(self) -> None:
        self._held = self._held or await self._broker.take(4)
        if self._held:
            await self._broker.append([EventGroup(one, one.next_seq, (b"said",)) for one in self._held])
            settled = await self._broker.settle([ending(one, seq=one.next_seq + 1) for one in self._held])
            assert all(settled), "nobody else has them"
            self.ended += [one.job_id for one in self._held]
            self._held = []
        await self._broker.wait(0.01)
        await self._broker.extend(b"{}")
        await self._broker.reclaim()


def put(port: int, count: int) -> list[str]:
    """Add jobs as a raw producer does that knows the node."""
    jobs = [new_job() for _ in range(count)]
    with redis.Redis(port=port, protocol=2) as node:
        for job in jobs:
            node.xadd(names.lane("interactive"), {"j": pack(job)})
    return [job.id for job in jobs]


async def test_moving_a_slot_loses_no_job(tmp_path: Path) -> None:
    with running_two_nodes(tmp_path) as ports, capture_logs():
        broker = RedisBroker(BrokerConfig(f"redis+cluster://127.0.0.1:{ports[0]}", "worker-1", lease=SOON))
        await broker.open()
        worker, submitted = Worker(broker), put(ports[0], 20)
        running = asyncio.create_task(worker.run())
        await worker.until_ended(4)
        for source, target in (ports, ports[::-1]):
            await move(worker, source, target, submitted)
            submitted += put(target, 20)
            await worker.until_ended(len(submitted))
        assert not running.done()
        running.cancel()
        assert sorted(worker.ended) == sorted(submitted), "each once"
        await broker.close()


async def test_a_move_to_a_node_that_is_new_is_an_outage_too(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with running_cluster(tmp_path) as first, running_node(tmp_path / "new") as second:
        client = RedisClient(f"redis+cluster://127.0.0.1:{first}", timeout=SOON)
        assert await client.call("GET", "{0}absent") is None
        meet(first, second)
        moving = SlotMove(first, second, "{0}")
        moving.begin()
        with pytest.raises(QueueUnavailable, match="new here"):
            await client.call("GET", "{0}absent")
        moving.end()
        assert await client.call("GET", "{0}absent") is None
        await client.close()


async def move(worker: Worker, source: int, target: int, submitted: list[str]) -> None:
    """Move the slot, and let the worker notice each stage of it."""
    moving = SlotMove(source, target, "{0}")
    submitted += put(source, 20)
    moving.begin()
    while moving.keys(20):
        await worker.until_an_outage()
    moving.end()
