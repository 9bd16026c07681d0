"""Real workers with scripted engines on the test's own Redis, and the keys left in it at the end."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop_schemas import names
from stoop_schemas.codec import unpack_result
from stoop_schemas.event import DeltaEvent, RestartedEvent, StartedEvent
from stoop_schemas.result import Result
from tests.chaos.workers import WorkerProcess

__all__ = ["RunningQueue", "running_queue"]

SECONDS = 60.0  # how long a test waits before it fails


@dataclass
class RunningQueue:
    """A client, a connection to Redis, and the workers that were started."""

    folder: Path
    redis_url: str
    client: AsyncClient
    redis: "Redis[bytes]"
    workers: list[WorkerProcess] = field(default_factory=list)

    async def worker(self, **settings: object) -> WorkerProcess:
        """Start a worker with these settings, by their names in its configuration."""
        path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        given = {"redis_url": self.redis_url, "lease_seconds": 2, "permits": 32, **settings}
        variables = {f"STOOP_{name.upper()}": str(value) for name, value in given.items()}
        environment = {**os.environ, "PYTHONPATH": path, **variables}
        worker = WorkerProcess(self.folder, f"worker-{len(self.workers)}", environment)
        self.workers.append(worker)
        await worker.start()
        return worker

    async def submit(self, *questions: str, **fields: object) -> list[str]:
        """Submit one job for each question, which is the script that the engine follows."""
        fields.setdefault("stream", True)  # or it would have no log to count runs in
        jobs = [await self.client.prepare("query", question=question, **fields) for question in questions]  # type: ignore[arg-type]
        return await self.client.submit_many(jobs)

    async def results(self, job_ids: Sequence[str]) -> list[Result]:
        """Wait for every job's end, whatever it is."""
        async with asyncio.timeout(SECONDS):
            return list(await asyncio.gather(*(self._result(job_id) for job_id in job_ids)))

    async def _result(self, job_id: str) -> Result:
        async for _ in self.client.stream(job_id):
            pass
        packed = await self.redis.get(names.result(job_id))
        assert packed is not None
        return unpack_result(packed)

    async def running(self, job_id: str) -> None:
        """Wait until the engine has sent output of a streamed job."""
        async with asyncio.timeout(SECONDS), contextlib.aclosing(self.client.stream(job_id)) as events:
            async for event in events:
                if isinstance(event, DeltaEvent):
                    return

    async def runs(self, job_id: str) -> int:
        """Count how often a job that has ended was begun."""
        events = [event async for event in self.client.stream(job_id)]
        return sum(isinstance(event, StartedEvent | RestartedEvent) for event in events)

    async def left(self) -> dict[str, int]:
        """Return the number of entries of each stream of jobs that is not empty, without the dead letters."""
        streams = [names.lane(lane) for lane in names.DEFAULT_LANES]
        streams += [names.quarantine(kind) for kind in names.QUARANTINES]
        lengths = {stream: await self.redis.xlen(stream) for stream in [*streams, names.dead(0)]}
        return {stream: length for stream, length in lengths.items() if length}


@contextlib.asynccontextmanager
async def running_queue(folder: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    """Yield a queue without workers; kill the workers that still run at the end."""
    config = ProducerConfig(redis_url=redis_url, timeout_seconds=SECONDS)
    async with AsyncClient(config) as client, Redis.from_url(redis_url, protocol=2) as redis:
        made = RunningQueue(folder, redis_url, client, redis)
        try:
            yield made
        finally:
            for worker in made.workers:
                if worker.returncode is None:
                    await worker.kill()
