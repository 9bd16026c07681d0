"""The case with a Redis Cluster and many partitions: workers are killed, and one of the masters in the middle."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from redis.asyncio import Redis, RedisCluster

from stoop.errors import QueueUnavailable
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.job import Job
from tests.chaos.cluster_nodes import ClusterNode, running_masters
from tests.chaos.deployment import Load, environment_of, question
from tests.chaos.ledger import Ledger
from tests.chaos.verdict import LAST_EVENTS, Verdict
from tests.chaos.workers import WorkerProcess

__all__ = ["PARTITIONS", "on_cluster"]

MASTERS: Final = 3
PARTITIONS: Final = 16
_OPEN_JOBS = 400
_LOOK_SECONDS = 0.2


async def on_cluster(folder: Path, load: Load) -> Verdict:
    """Three masters and sixteen partitions: workers are killed, and a master is killed and started again."""
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack, asyncio.timeout(load.limit):
        nodes = stack.enter_context(running_masters(folder / "redis", MASTERS))
        here = _Field(load, folder, nodes, Ledger(folder / "ledger.jsonl"))
        await stack.enter_async_context(here.watched())
        await stack.enter_async_context(here.working())
        asked = [f"sleep {0.05 + 0.05 * (n % 6):.2f}" for n in range(load.jobs)]
        ids = [names.new_id(n % PARTITIONS) for n in range(load.jobs)]
        jobs = [question(ids[n], asked[n], stream=n // PARTITIONS % 2 == 0) for n in range(load.jobs)]
        await asyncio.gather(here.submit(jobs), here.do_harm())
        await here.ledger.until_these_ended([job.id for job in jobs])
        assert all(worker.returncode is None for worker in here.workers), "a worker outlives a master"
        return await here.verdict()


@dataclass(slots=True)
class _Field:
    """The servers and records of the case. `heard` counts the last events that each node's subscriber heard, by job."""

    load: Load
    folder: Path
    nodes: list[ClusterNode]
    ledger: Ledger
    workers: list[WorkerProcess] = field(default_factory=list)
    heard: Counter[str] = field(default_factory=Counter)
    faults: int = 0

    @property
    def url(self) -> str:
        """The Cluster's address, by its first node."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run the workers, each on all partitions."""
        settings = {"partitions": ",".join(map(str, range(PARTITIONS)))}
        environment = environment_of(self.url, self.load, settings)
        self.workers += [WorkerProcess(self.folder, f"worker-{n}", environment) for n in range(self.load.workers)]
        try:
            await asyncio.gather(*(worker.start() for worker in self.workers))
            yield
        finally:
            for worker in self.workers:
                with contextlib.suppress(AssertionError, ProcessLookupError):
                    await worker.kill()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Listen on a node that lives, and look for the results of jobs whose last event was missed."""
        tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._look())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def submit(self, jobs: list[Job]) -> None:
        """Submit like a producer that never gives up; keep the queue filled but not flooded."""
        transport = RedisTransport(self.url)
        try:
            for start in range(0, len(jobs), PARTITIONS * 4):
                await self.ledger.until_fewer_open(_OPEN_JOBS)
                accepted: list[str] = []
                while not accepted:
                    with contextlib.suppress(QueueUnavailable):
                        accepted = await transport.submit(jobs[start : start + PARTITIONS * 4])
                    await asyncio.sleep(0)
                await self.ledger.accept(accepted)
        finally:
            await transport.close()

    async def do_harm(self) -> None:
        """Kill workers, spread over the load, and in the middle of it a master."""
        chance, middle = Random(self.load.seed), self.load.faults // 2
        for number in range(self.load.faults):
            await self.ledger.until_ended((number + 1) * self.load.jobs // (self.load.faults + 2))
            worker = chance.choice(self.workers)
            await worker.kill()
            if number == middle:
                await asyncio.to_thread(self._restart_a_master)
            await worker.start()
            self.faults += 1 + (number == middle)

    def _restart_a_master(self) -> None:
        # the listener's node lives on
        self.nodes[-1].kill()
        self.nodes[-1].start()

    async def _listen(self) -> None:
        """Subscribe to every channel: a Cluster sends published messages to all of its nodes."""
        async with Redis(port=self.nodes[0].port, protocol=2) as connection, connection.pubsub() as channels:
            await channels.psubscribe("stoop:{*}:events:*")
            async for heard in channels.listen():
                if heard["type"] == "pmessage" and (event := json.loads(heard["data"]))["type"] in LAST_EVENTS:
                    self.heard[event["id"]] += 1
                    await self.ledger.end(event["id"], event["type"], published=True)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(Exception):  # a master is away
                async with self._connected() as cluster:
                    for job_id in self.ledger.account.open:
                        if await cluster.exists(names.result(job_id)) and job_id not in self.ledger.account.ended:
                            await self.ledger.end(job_id, "found", published=False)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[RedisCluster]:
        async with RedisCluster(host="127.0.0.1", port=self.nodes[0].port, protocol=2) as cluster:
            yield cluster

    async def verdict(self) -> Verdict:
        """Judge by the contents of the Cluster at the end."""
        self.ledger.close()
        account, lost, twice, reruns, left = self.ledger.account, 0, 0, 0, 0
        async with self._connected() as cluster:
            for job_id in account.accepted:
                lost += not await cluster.exists(names.result(job_id))
                events = [json.loads(fields[b"e"])["type"] for _, fields in await cluster.xrange(names.log(job_id))]
                twice += sum(event in LAST_EVENTS for event in events) > 1 or self.heard[job_id] > 1
                reruns += "restarted" in events
            for partition in range(PARTITIONS):
                left += await cluster.zcard(names.delayed(partition)) + await cluster.xlen(names.dead(partition))
                for lane in (*names.DEFAULT_LANES, *map(names.quarantine_lane, names.QUARANTINES)):
                    left += await cluster.xlen(names.lane(lane, partition))
        times = [*account.accepted.values(), *(ends[0].at for ends in account.ended.values())]
        return Verdict(
            case="on a cluster", jobs=len(account.accepted), faults=self.faults, lost=lost, twice=twice, left=left,
            seconds=round(max(times, default=time.monotonic()) - min(times, default=time.monotonic()), 2),
            reruns=reruns, endings=dict(Counter(ends[0].how for ends in account.ended.values())),
            facts={"masters": len(self.nodes), "partitions": PARTITIONS},
        )  # fmt: skip
