"""A place for chaos: a Redis that may be killed, real workers, a steady load, a ledger and a watcher outside of it."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from stoop.demo.embedded import EmbeddedRedis, embedded_redis
from stoop.errors import QueueFull, QueueUnavailable
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.job import Job
from stoop_schemas.skill import Settings, Skill
from tests.chaos.ledger import Ledger
from tests.chaos.verdict import Verdict, judge, streams
from tests.chaos.watcher import Watcher
from tests.chaos.workers import WorkerProcess

__all__ = ["Deployment", "Load", "deployment", "environment_of", "question", "questions"]

_CHUNK = 100
_OPEN_JOBS = 1500
"""Accepted and not ended, at most: no worker runs dry, and the load lasts as long as the faults."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load on a queue: jobs, faults, the random seed, the workers' lease in seconds and what each runs at once."""

    jobs: int
    faults: int
    seed: int = 0
    lease: float = 5.0
    workers: int = 3
    permits: int = 64
    limit: float = 600.0


@dataclass(slots=True)
class Deployment:
    """The servers, processes and clients of one case. `recoveries` are the seconds from each fault to the end of each
    job it hit.
    """

    load: Load
    folder: Path
    settings: dict[str, str]
    server: EmbeddedRedis
    redis: Redis
    ledger: Ledger
    workers: list[WorkerProcess] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    faults: int = 0
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(self.load.seed)

    async def start_workers(self, url: str) -> None:
        """Start as many more workers as the load names, which reach Redis at `url`."""
        environment = environment_of(url, self.load, self.settings)
        first = len(self.workers)
        started = [WorkerProcess(self.folder, f"worker-{first + n}", environment) for n in range(self.load.workers)]
        self.workers += started
        await asyncio.gather(*(worker.start() for worker in started))

    async def submit(self, jobs: Iterable[Job]) -> None:
        """Submit like a producer that never gives up; keep the queue filled but not flooded."""
        transport = RedisTransport(self.server.url)
        try:
            for chunk in _chunks(jobs):
                await self.ledger.until_fewer_open(_OPEN_JOBS)
                while True:
                    with contextlib.suppress(QueueUnavailable, QueueFull):
                        accepted = await transport.submit(chunk)
                        break
                    await asyncio.sleep(0.05)
                await self.ledger.accept(accepted)
        finally:
            await transport.close()

    async def at_each_share(self, fault: Callable[[], object]) -> None:
        """Do something `load.faults` times, spread over the load by the jobs that have ended.

        A call that returns False hit nothing, and does not count.
        """
        for number in range(self.load.faults):
            share = (number + 1) / (self.load.faults + 1)
            await self.ledger.until_ended(int(share * self.load.jobs))
            done = fault()
            if asyncio.iscoroutine(done):
                done = await done
            self.faults += done is not False

    async def pending_of(self, pid: int) -> list[str]:
        """Return the ids of the jobs that the worker with this process id has claimed and not settled."""
        found = []
        for stream in await streams(self.redis):
            for consumer in await self.redis.xinfo_consumers(stream, names.GROUP):
                if f"-{pid}-" not in consumer["name"].decode():
                    continue
                claimed = await self.redis.xpending_range(
                    stream, names.GROUP, min="-", max="+", count=10_000, consumername=consumer["name"]
                )
                found += [(stream, each["message_id"]) for each in claimed]
        pipeline = self.redis.pipeline(transaction=False)
        for stream, entry in found:
            pipeline.xrange(stream, entry, entry)
        entries = [reply[0][1] for reply in await pipeline.execute() if reply]
        return [(fields.get(b"id") or _id_in(fields[b"j"])).decode() for fields in entries]

    async def freeze_at_work(self, worker: WorkerProcess, *, engine: bool = False) -> list[str]:
        """Stop a worker once at least one of its jobs has logged that it runs; return the ids of all its jobs.

        Without such a job a fault would hit only claims, and nothing would run twice. With `engine`, also stop the
        engine's process, which would otherwise answer its jobs in the meantime.
        """
        while True:
            worker.send(signal.SIGSTOP, engine=engine)
            claimed = await self.pending_of(worker.pid)
            logged = [await self.redis.xlen(names.log(job_id)) for job_id in claimed]
            if max(logged, default=0) > 1 or not self.ledger.account.open:
                return claimed
            worker.send(signal.SIGCONT, engine=engine)
            await asyncio.sleep(0.02)

    async def recovers(self, job_ids: Sequence[str], *, since: float | None = None) -> None:
        """Wait for the ends of the jobs that a fault has hit, now if not `since`, and record how long each took."""
        began = time.monotonic() if since is None else since
        await self.ledger.until_these_ended(job_ids)
        ended = self.ledger.account.ended
        self.recoveries += [max(0.0, ended[job_id][0].at - began) for job_id in job_ids]

    async def verdict(self, case: str) -> Verdict:
        """Return the verdict, once every job has ended."""
        await self.ledger.until_these_ended(list(self.ledger.account.accepted))
        self.ledger.close()
        return await judge(
            case, self.folder / "ledger.jsonl", self.redis, faults=self.faults, recoveries=self.recoveries
        )


@contextlib.asynccontextmanager
async def deployment(folder: Path, load: Load, *, start: bool = True, **settings: str) -> AsyncIterator[Deployment]:
    """Set everything up and start the workers; `settings` are more of theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(folder / "ledger.jsonl")
    async with AsyncExitStack() as stack, asyncio.timeout(load.limit):
        server = stack.enter_context(embedded_redis(folder / "redis"))
        # the test only reads, so it may ask again when Redis was killed under it
        redis = Redis.from_url(server.url, protocol=2, retry=Retry(ConstantBackoff(0.05), 100), socket_timeout=10.0)
        stack.push_async_callback(redis.aclose)
        watcher = Watcher(server.url, ledger)
        watching = asyncio.create_task(watcher.run())
        stack.push_async_callback(_stop, watching)
        await watcher.following.wait()
        here = Deployment(load, folder, settings, server, redis, ledger)
        stack.push_async_callback(_end_all, here)
        if start:
            await here.start_workers(server.url)
        yield here


def questions(count: int, *, stem: str = "job", model: str | None = None) -> list[Job]:
    """Make jobs that take 50 to 300 ms each, so that a fault always finds some that run. Every second one streams."""
    asked = [f"sleep {0.05 + 0.05 * (number % 6):.2f}" for number in range(count)]
    return [question(f"{stem}-{number}", text, model, stream=number % 2 == 0) for number, text in enumerate(asked)]


def question(job_id: str, asked: str, model: str | None = None, *, stream: bool = True) -> Job:
    """Make a job that the scripted engine understands. It has a log only if it streams."""
    settings, lane = Settings(max_tokens=1), names.DEFAULT_LANES[-1]
    return Job(
        id=job_id, skill=Skill.QUERY, question=asked, settings=settings, lane=lane, model=model, stream=stream
    )  # fmt: skip


def environment_of(url: str, load: Load, settings: dict[str, str]) -> dict[str, str]:
    """Return the variables of a worker or a producer."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOOP_")}
    return {
        **inherited,
        "STOOP_REDIS_URL": url,
        "STOOP_LEASE_SECONDS": str(load.lease),
        "STOOP_LOG_LEVEL": "warning",
        "STOOP_PERMITS": str(load.permits),
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        **{f"STOOP_{name.upper()}": value for name, value in settings.items()},
    }


def _chunks(jobs: Iterable[Job]) -> list[list[Job]]:
    every = list(jobs)
    return [every[start : start + _CHUNK] for start in range(0, len(every), _CHUNK)]


def _id_in(packed: bytes) -> bytes:
    return str(json.loads(packed)["id"]).encode()


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _end_all(here: Deployment) -> None:
    for worker in here.workers:
        with contextlib.suppress(AssertionError, ProcessLookupError):
            worker.send(signal.SIGCONT)
            await worker.end(signal.SIGKILL)
