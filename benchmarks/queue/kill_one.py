"""Kills one of several workers while it holds jobs, and follows every job to its end."""

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
from redis.asyncio import Redis

from stoop import AsyncClient
from stoop.config import ProducerConfig
from stoop.operator.redis_operator import RedisOperator
from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.state import State

__all__ = ["Aftermath", "kill_one", "live_workers"]

_LAST = {"finished", "failed", "cancelled", "expired"}
_POLL_SECONDS = 0.02
_QUIET_SECONDS = 1.0  # for a second end of a job, should there be one
_MOST_PENDING = 10_000


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The fate of the jobs of a load under which a worker was killed.

    `held` jobs were the killed worker's. They ended on the workers of `held_ended_on` (a process id and its number of
    jobs), the last one `recovery_seconds` after the kill. `lost` jobs did not complete; `twice` had two last events.
    """

    jobs: int
    held: int
    killed: int
    ended_on: dict[int, int]
    held_ended_on: dict[int, int]
    recovery_seconds: float
    lost: int
    twice: int

    @property
    def sound(self) -> bool:
        """True if the kill hit jobs, and each of them ended once on a worker that was not killed."""
        on_killed = self.held_ended_on.get(self.killed, 0)
        return self.held > 0 and (self.lost, self.twice, on_killed) == (0, 0, 0)

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON values."""
        return asdict(self)


@dataclass(slots=True)
class _Ends:
    """Counts the last events of every job on the channels of partition 0, with the time of the first one."""

    counts: Counter[str] = field(default_factory=Counter)
    at: dict[str, float] = field(default_factory=dict)

    async def follow(self, redis: Redis, following: asyncio.Event) -> None:
        async with redis.pubsub() as channels:
            await channels.psubscribe(f"{names.stem(0)}events:*")
            async for message in channels.listen():
                if message["type"] == "psubscribe":
                    following.set()
                elif (event := msgspec.json.decode(message["data"]))["type"] in _LAST:
                    self.at.setdefault(event["id"], time.monotonic())
                    self.counts[event["id"]] += 1


@dataclass(slots=True)
class _Feed:
    """Keeps `load` jobs in flight until `stop` is set, and waits for the last of them."""

    config: ProducerConfig
    next_job: Callable[[AsyncClient], Coroutine[Any, Any, Job]]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    results: dict[str, Result] = field(default_factory=dict)
    submitted: int = 0

    async def run(self, load: int) -> None:
        async with AsyncClient(self.config) as client, asyncio.TaskGroup() as group:
            for _ in range(load):
                group.create_task(self._keep_asking(client))

    async def _keep_asking(self, client: AsyncClient) -> None:
        while not self.stop.is_set():
            job_id = await client.submit(await self.next_job(client))
            self.submitted += 1
            self.results[job_id] = await client.result(job_id)


async def live_workers(url: str) -> dict[str, int]:
    """Return the process ids of the live workers by their names."""
    operator = RedisOperator(url)
    try:
        return {each.worker: int(each.facts["pid"]) for each in await operator.workers()}
    finally:
        await operator.close()


async def kill_one(
    config: ProducerConfig, next_job: Callable[[AsyncClient], Coroutine[Any, Any, Job]], *, load: int
) -> Aftermath:
    """Keep `load` jobs in flight, kill one worker when as many have ended, stop asking, and wait for every job."""
    url = config.redis_url.get_secret_value()
    ends, feed = _Ends(), _Feed(config, next_job)
    async with Redis.from_url(url, protocol=2) as redis, _following(redis, ends):
        feeding = asyncio.create_task(feed.run(load))
        try:
            while len(feed.results) < load and not feeding.done():
                await asyncio.sleep(_POLL_SECONDS)
            pids, victim, held = await _kill(redis, url, str(config.lane))
            killed_at = time.monotonic()
        finally:
            feed.stop.set()
            await feeding
        await asyncio.sleep(_QUIET_SECONDS)
    by_worker = {job_id: pids.get(result.worker or "", 0) for job_id, result in feed.results.items()}
    return Aftermath(
        jobs=feed.submitted,
        held=len(held),
        killed=pids[victim],
        ended_on=dict(Counter(by_worker.values())),
        held_ended_on=dict(Counter(by_worker[job_id] for job_id in held)),
        recovery_seconds=max(ends.at[job_id] for job_id in held) - killed_at,
        lost=feed.submitted - sum(result.status == State.COMPLETED for result in feed.results.values()),
        twice=sum(count > 1 for count in ends.counts.values()),
    )


@contextlib.asynccontextmanager
async def _following(redis: Redis, ends: _Ends) -> AsyncIterator[None]:
    following = asyncio.Event()
    task = asyncio.create_task(ends.follow(redis, following))
    try:
        await following.wait()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _kill(redis: Redis, url: str, lane: str) -> tuple[dict[str, int], str, list[str]]:
    """Kill the first worker that is found with jobs; return all workers, its name and its jobs.

    It is stopped before its jobs are read, so that none of them ends in between.
    """
    while True:
        pids = await live_workers(url)
        for worker, pid in pids.items():
            os.kill(pid, signal.SIGSTOP)
            if held := await _held(redis, worker, lane):
                os.kill(pid, signal.SIGKILL)
                return pids, worker, held
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(_POLL_SECONDS)


async def _held(redis: Redis, worker: str, lane: str) -> list[str]:
    """Return the ids of the jobs that a worker has claimed from a lane and not settled."""
    stream = names.lane(lane)
    pending = await redis.xpending_range(
        stream, names.GROUP, min="-", max="+", count=_MOST_PENDING, consumername=worker
    )
    entries = [await redis.xrange(stream, each["message_id"], each["message_id"]) for each in pending]
    return [msgspec.json.decode(fields[b"j"])["id"] for each in entries for _, fields in each]
