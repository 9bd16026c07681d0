"""Engines that die, hang and are killed under their jobs, in real workers."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop_schemas import names
from stoop_schemas.failure import FailureCode
from stoop_schemas.state import State
from tests.flow.scripted import SECONDS, Floor, floor


@pytest.fixture
async def ground(tmp_path: Path, redis_url: str) -> AsyncIterator[Floor]:
    async with floor(tmp_path, redis_url) as ground:
        yield ground


async def ends(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    descriptor = os.pidfd_open(pid)
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    try:
        async with asyncio.timeout(SECONDS):
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_jobs_outlive_the_engine_and_the_worker_too(ground: Floor) -> None:
    worker = await ground.worker()
    jobs = await ground.submit(*["sleep 0.05"] * 300)
    [seen] = await ground.submit("wait", stream=True)
    await ground.running(seen)
    worker.kill_engine()
    results = await ground.results(jobs)
    assert {result.status for result in results} == {State.COMPLETED}
    assert worker.returncode is None
    assert await ground.client.cancel(seen) is not None
    [broken_off] = await ground.results([seen])
    assert broken_off.status is State.CANCELLED
    assert await ground.left() == {}


@pytest.mark.parametrize(("poison", "settings"), [("die", {}), ("fault", {}), ("hang", {"hang_seconds": 1})])
async def test_a_poison_job_is_buried_alone(ground: Floor, poison: str, settings: dict[str, object]) -> None:
    worker = await ground.worker(permits=64, **settings)
    innocents = await ground.submit(*["sleep 0.02"] * 50)
    [culprit] = await ground.submit(poison)
    innocents += await ground.submit(*["sleep 0.02"] * 50)
    results = await ground.results(innocents)
    assert {result.status for result in results} == {State.COMPLETED}
    [buried] = await ground.results([culprit])
    assert buried.failure is not None
    assert (buried.status, buried.failure.code) == (State.FAILED, FailureCode.WORKER_LOST)
    assert await ground.left() == {names.dead(0): 1}
    assert await ground.redis.hget(names.job(culprit), "crashes") == b"3"
    assert await ground.runs(culprit) == 3
    assert worker.returncode is None
    runs = [await ground.runs(job) for job in innocents]
    assert max(runs) <= 3
    assert await ground.client.result((await ground.submit("still here"))[0])


async def test_an_engine_that_only_crashes_ends_the_worker_and_loses_no_job(ground: Floor) -> None:
    worker = await ground.worker(max_engine_faults=2, permits=4)
    jobs = await ground.submit(*["die"] * 12)
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 1
    assert "2 faults of the engine in a row" in worker.last_words()
    states = [await ground.redis.hget(names.job(job), "state") for job in jobs]
    assert set(states) == {b"queued"}
    crashes = [int(await ground.redis.hget(names.job(job), "crashes") or 0) for job in jobs]
    ends = [json.loads(line) for line in worker.log.read_text().splitlines() if "ended while it ran jobs" in line]
    assert len(ends) == 2
    assert sum(crashes) == sum(end["jobs"] for end in ends), "the last crash counts too"
    assert sum((await ground.left()).values()) == len(jobs)


async def test_the_engine_ends_with_a_front_that_is_killed(ground: Floor) -> None:
    worker = await ground.worker()
    [engine] = worker.children
    watching = asyncio.create_task(ends(engine))
    await asyncio.sleep(0)
    await worker.kill()
    await watching


async def test_a_running_job_is_cancelled_within_a_step(ground: Floor) -> None:
    await ground.worker(lease_seconds=600)  # so the cancel arrives as an order, not as the flag
    [job] = await ground.submit("wait", stream=True)
    await ground.running(job)
    began = time.monotonic()
    await ground.client.cancel(job)
    [result] = await ground.results([job])
    assert result.status is State.CANCELLED
    assert time.monotonic() - began < 30
    assert await ground.left() == {}


async def test_a_cancel_that_was_not_heard_is_read_with_the_lease(ground: Floor) -> None:
    await ground.worker(lease_seconds=1)
    [job] = await ground.submit("wait", stream=True)
    await ground.running(job)
    await ground.redis.hset(names.job(job), "cancel", "1")
    [result] = await ground.results([job])
    assert result.status is State.CANCELLED


async def test_a_running_job_ends_at_its_deadline(ground: Floor) -> None:
    await ground.worker()
    seconds, microseconds = await ground.redis.time()
    [job] = await ground.submit("wait", deadline=seconds * 1000 + microseconds // 1000 + 700)
    [result] = await ground.results([job])
    assert result.status is State.EXPIRED


async def test_a_stopped_engine_is_replaced_while_its_process_lives(ground: Floor) -> None:
    worker = await ground.worker(hang_seconds=1)
    [engine] = worker.children
    os.kill(engine, signal.SIGSTOP)
    jobs = await ground.submit(*["x"] * 20)
    assert {result.status for result in await ground.results(jobs)} == {State.COMPLETED}
    assert engine not in worker.children
