"""The cases: each does one kind of harm to real processes under load, and returns the verdict.

Faults are triggered by records of the ledger, never by the clock. A case asserts only its own conditions; that nothing
is lost, answered twice or left over is asked of each by `Verdict.sound`.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

from stoop.demo.pictures import draw_pictures
from stoop_schemas import names
from stoop_schemas.failure import FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import Skill
from stoop_schemas.state import State
from tests.chaos.deployment import Deployment, Load, deployment, question, questions
from tests.chaos.on_cluster import on_cluster
from tests.chaos.two_models import two_models
from tests.chaos.verdict import Verdict
from tests.support.faulty_store import FaultyStore, faulty_store
from tests.support.lossy_network import lossy_network

__all__ = ["CASES", "Case"]

Case = Callable[[Path, Load], Awaitable[Verdict]]


async def workers_killed(folder: Path, load: Load) -> Verdict:
    """One of three workers is killed at random, again and again; another starts in its place."""
    async with deployment(folder, load) as here:
        recovering: list[asyncio.Task[None]] = []

        async def kill() -> None:
            worker = here.chance.choice(here.workers)
            claimed = await here.freeze_at_work(worker)
            await worker.kill()
            recovering.append(asyncio.create_task(here.recovers(claimed)))
            await worker.start()

        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(kill))
        await asyncio.gather(*recovering)
        return await here.verdict("workers killed")


async def engines_killed(folder: Path, load: Load) -> Verdict:
    """The engine's process of one of three workers is killed at random; its front lives on."""
    async with deployment(folder, load) as here:
        recovering: list[asyncio.Task[None]] = []

        async def kill() -> None:
            worker = here.chance.choice([worker for worker in here.workers if worker.children])
            claimed = await here.freeze_at_work(worker, engine=True)
            worker.kill_engine()
            worker.send(signal.SIGCONT)
            recovering.append(asyncio.create_task(here.recovers(claimed)))

        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(kill))
        await asyncio.gather(*recovering)
        assert all(worker.returncode is None for worker in here.workers), "a front outlives its engine"
        return await here.verdict("engines killed")


async def redis_killed_everysec(folder: Path, load: Load) -> Verdict:
    """Redis is killed and restarted; its append-only file goes to the disk every second."""
    return await _redis_killed(folder, load, "everysec")


async def redis_killed_always(folder: Path, load: Load) -> Verdict:
    """Redis is killed and restarted; its append-only file goes to the disk before every reply."""
    return await _redis_killed(folder, load, "always")


async def _redis_killed(folder: Path, load: Load, policy: str) -> Verdict:
    async with deployment(folder, load) as here:
        await here.redis.config_set("appendfsync", policy)

        async def kill() -> None:
            claimed = [job_id for worker in here.workers for job_id in await here.pending_of(worker.pid)]
            began = time.monotonic()
            here.server.restart()
            await here.redis.config_set("appendfsync", policy)
            await here.recovers(claimed, since=began)

        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(kill))
        assert all(worker.returncode is None for worker in here.workers), "a worker outlives its Redis"
        return await here.verdict(f"redis killed, AOF {policy}")


async def worker_frozen(folder: Path, load: Load) -> Verdict:
    """A worker is stopped until its jobs have ended elsewhere, and then continues: its results come too late."""
    async with deployment(folder, load) as here:
        fenced = 0

        async def freeze() -> bool:
            nonlocal fenced
            worker = here.chance.choice(here.workers)
            claimed = await here.freeze_at_work(worker)
            await here.recovers(claimed)
            fenced += len(claimed)
            worker.send(signal.SIGCONT)
            return bool(claimed)

        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(freeze))
        # a thawed worker publishes its remaining events before it ends
        codes = [await worker.end(signal.SIGTERM) for worker in here.workers]
        assert codes == [0] * len(codes)
        verdict = await here.verdict("worker frozen")
        return replace(verdict, facts={"taken from the frozen": fenced})


async def poison_among_others(folder: Path, load: Load) -> Verdict:
    """One job kills the engine whenever it runs, in a batch with a hundred others."""
    async with deployment(folder, replace(load, workers=1), max_engine_faults="10") as here:
        await here.submit([*questions(50), question("poison", "die"), *questions(50, stem="other")])
        here.faults = 1
        verdict = await here.verdict("poison among 100")
        return await _buried(here, verdict, "poison")


async def engine_hung(folder: Path, load: Load) -> Verdict:
    """One job hangs the engine whenever it runs: the front notices, ends the engine, and the others go on."""
    async with deployment(folder, replace(load, workers=1), max_engine_faults="10", hang_seconds="1") as here:
        await here.submit([*questions(20), question("hanging", "hang"), *questions(20, stem="other")])
        here.faults = 1
        verdict = await here.verdict("engine hung")
        return await _buried(here, verdict, "hanging")


async def _buried(here: Deployment, verdict: Verdict, job_id: str) -> Verdict:
    """Check that only this job became a dead letter, because its workers died under it."""
    letters = await here.redis.xrange(names.dead())
    assert [fields[b"id"].decode() for _, fields in letters] == [job_id], "the others are innocent"
    crashes = int(letters[0][1][b"crashes"])
    assert FailureCode.WORKER_LOST.encode() in letters[0][1][b"failure"]
    assert verdict.endings == {"finished": verdict.jobs - 1, "failed": 1}
    return replace(verdict, facts={"crashes of the buried job": crashes})


async def long_job(folder: Path, load: Load) -> Verdict:
    """A job takes ten times as long as the lease, beside others and with others to take it over: it runs once."""
    async with deployment(folder, load) as here:
        await here.submit([question("long", f"sleep {10 * load.lease}"), *questions(load.jobs - 1)])
        verdict = await here.verdict("job of ten leases")
        assert verdict.reruns == 0, "who lives keeps its jobs"
        return verdict


async def stopped_under_load(folder: Path, load: Load) -> Verdict:
    """SIGTERM to every worker under load; new ones find all released jobs, and no attempt was counted."""
    async with deployment(folder, load, drain_seconds="1") as here:
        ends: list[float] = []

        async def stop() -> None:
            worker = here.chance.choice(here.workers)
            began = time.monotonic()
            assert await worker.end(signal.SIGTERM) == 0
            ends.append(time.monotonic() - began)
            await worker.start()

        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(stop))
        verdict = await here.verdict("stopped under load")
        attempts = await _attempts(here)
        assert attempts == {1}, "a run that was given back is no attempt"
        return replace(verdict, facts={"slowest stop s": round(max(ends), 2), "attempts": sorted(attempts)})


async def stopped_twice(folder: Path, load: Load) -> Verdict:
    """A second SIGTERM does not wait for running jobs; another worker runs them then."""
    async with deployment(folder, replace(load, workers=1), drain_seconds="60") as here:
        [worker] = here.workers
        async with _running(here, [question(f"long-{number}", "sleep 30") for number in range(5)]):
            worker.send(signal.SIGTERM)
            await worker.until_draining()
            began = time.monotonic()
            await worker.end(signal.SIGTERM)
            seconds = time.monotonic() - began
        assert seconds < 5, "a second signal is obeyed within 5 s"
        left = await here.redis.xlen(names.lane(names.DEFAULT_LANES[-1]))
        here.ledger.close()
        endings = {"running at the stop": 5}
        return Verdict(
            case="stopped twice", jobs=5, faults=1, seconds=round(seconds, 2), lost=5 - left, twice=0, left=0, reruns=0,
            endings=endings, facts={"stop s": round(seconds, 2), "kept for others": left},
        )  # fmt: skip


@contextlib.asynccontextmanager
async def _running(here: Deployment, jobs: list[Job]) -> Any:
    """Submit jobs, and go on when all of them run."""
    async with here.redis.pubsub() as channels:
        await channels.psubscribe(f"{names.stem(0)}events:*")
        await here.submit(jobs)
        waiting = {job.id for job in jobs}
        while waiting:
            heard = await channels.get_message(timeout=30, ignore_subscribe_messages=True)
            if heard is not None and b'"started"' in heard["data"]:
                waiting.discard(heard["channel"].decode().rpartition(":")[2])
        yield


async def redis_link_bad(folder: Path, load: Load) -> Verdict:
    """The workers' link to Redis takes 100 ms each way, and is cut again and again; no lease is lost by that."""
    async with deployment(folder, load, start=False) as here, lossy_network(*_route(here.server.url)) as network:
        network.delay = 0.1
        await here.start_workers(f"redis://127.0.0.1:{network.port}/0")
        await asyncio.gather(here.submit(questions(load.jobs)), here.at_each_share(network.cut))
        assert all(worker.returncode is None for worker in here.workers)
        taken_over = int(await here.redis.hget(names.totals(), "reclaimed") or 0)
        assert taken_over == 0, "a slow worker is no dead one"
        return await here.verdict("redis link slow and cut")


def _route(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 6379)


async def store_bad(folder: Path, load: Load) -> Verdict:
    """The object store answers 5 % of all GETs with a 500 and 2 % late; a tenth of the images are not there."""
    [picture] = draw_pictures(1, seed=load.seed)
    objects = {f"/images/{number}.png": picture.encoded for number in range(20)}
    store = FaultyStore(objects, Random(load.seed), failing=0.05, slow=0.02, slow_seconds=4.0)
    async with faulty_store(store):
        access = {"s3_endpoint": store.endpoint, "s3_path_style": "true", "s3_region": "us-east-1"}
        async with deployment(folder, load, max_attempts="10", fetch_timeout_seconds="2", **access) as here:
            await here.submit([_picture_job(number) for number in range(load.jobs)])
            here.faults = 0
            verdict = await here.verdict("object store failing")
    absent = sum(number % 10 == 0 for number in range(load.jobs))
    assert verdict.endings == {"finished": load.jobs - absent, "failed": absent}
    return replace(
        verdict, faults=store.answered["500"] + store.answered["slow"], facts={"answers": dict(store.answered)}
    )


def _picture_job(number: int) -> Job:
    name = "absent" if number % 10 == 0 else str(number % 20)
    image = f"s3://images/{name}.png"
    lane, stream = names.DEFAULT_LANES[-1], number % 2 == 0
    return Job(id=f"picture-{number}", skill=Skill.CAPTION, image=image, lane=lane, stream=stream)


async def _attempts(here: Deployment) -> set[int]:
    pipeline = here.redis.pipeline(transaction=False)
    for job_id in here.ledger.account.accepted:
        pipeline.hmget(names.job(job_id), "state", "attempt")
    return {int(attempt) for state, attempt in await pipeline.execute() if state == State.COMPLETED.encode()}


CASES: dict[str, Case] = {
    case.__name__: case
    for case in (
        workers_killed,
        engines_killed,
        two_models,
        redis_killed_everysec,
        redis_killed_always,
        worker_frozen,
        poison_among_others,
        engine_hung,
        long_job,
        stopped_under_load,
        stopped_twice,
        redis_link_bad,
        store_bad,
        on_cluster,
    )
}
