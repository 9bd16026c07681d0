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
from tests.flow.scripted import SECONDS, RunningQueue, running_queue


@pytest.fixture
async def queue(tmp_path: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    async with running_queue(tmp_path, redis_url) as queue:
        yield queue


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


async def test_jobs_outlive_the_engine_and_the_worker_too(queue: RunningQueue) -> None:
    worker = await queue.worker()
    jobs = await queue.submit(*["sleep 0.05"] * 300)
    [seen] = await queue.submit("wait", stream=True)
    await queue.running(seen)
    worker.kill_engine()
    results = await queue.results(jobs)
    assert {result.status for result in results} == {State.COMPLETED}
    assert worker.returncode is None
    assert await queue.client.cancel(seen) is not None
    [broken_off] = await queue.results([seen])
    assert broken_off.status is State.CANCELLED
    assert await queue.left() == {}


@pytest.mark.parametrize(("poison", "settings"), [("die", {}), ("fault", {}), ("hang", {"hang_seconds": 1})])
async def test_a_poison_job_is_buried_alone(queue: RunningQueue, poison: str, settings: dict[str, object]) -> None:
    worker = await queue.worker(permits=64, **settings)
    innocents = await queue.submit(*["sleep 0.02"] * 50)
    [culprit] = await queue.submit(poison)
    innocents += await queue.submit(*["sleep 0.02"] * 50)
    results = await queue.results(innocents)
    assert {result.status for result in results} == {State.COMPLETED}
    [buried] = await queue.results([culprit])
    assert buried.failure is not None
    assert (buried.status, buried.failure.code) == (State.FAILED, FailureCode.WORKER_LOST)
    assert await queue.left() == {names.dead(0): 1}
    assert await queue.redis.hget(names.job(culprit), "crashes") == b"3"
    assert await queue.runs(culprit) == 3
    assert worker.returncode is None
    runs = [await queue.runs(job) for job in innocents]
    assert max(runs) <= 3
    assert await queue.client.result((await queue.submit("still here"))[0])


async def test_an_engine_that_only_crashes_ends_the_worker_and_loses_no_job(queue: RunningQueue) -> None:
    worker = await queue.worker(max_engine_faults=2, permits=4)
    jobs = await queue.submit(*["die"] * 12)
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 1
    assert "2 faults of the engine in a row" in worker.last_words()
    states = [await queue.redis.hget(names.job(job), "state") for job in jobs]
    assert set(states) == {b"queued"}
    crashes = [int(await queue.redis.hget(names.job(job), "crashes") or 0) for job in jobs]
    ends = [json.loads(line) for line in worker.log.read_text().splitlines() if "ended while it ran jobs" in line]
    assert len(ends) == 2
    assert sum(crashes) == sum(end["jobs"] for end in ends), "the last crash counts too"
    assert sum((await queue.left()).values()) == len(jobs)


async def test_the_engine_ends_with_a_front_that_is_killed(queue: RunningQueue) -> None:
    worker = await queue.worker()
    [engine] = worker.children
    watching = asyncio.create_task(ends(engine))
    await asyncio.sleep(0)
    await worker.kill()
    await watching


async def test_a_running_job_is_cancelled_within_a_step(queue: RunningQueue) -> None:
    await queue.worker(lease_seconds=600)  # so the cancel arrives as an order, not as the flag
    [job] = await queue.submit("wait", stream=True)
    await queue.running(job)
    began = time.monotonic()
    await queue.client.cancel(job)
    [result] = await queue.results([job])
    assert result.status is State.CANCELLED
    assert time.monotonic() - began < 30
    assert await queue.left() == {}


async def test_a_cancel_that_was_not_heard_is_read_with_the_lease(queue: RunningQueue) -> None:
    await queue.worker(lease_seconds=1)
    [job] = await queue.submit("wait", stream=True)
    await queue.running(job)
    await queue.redis.hset(names.job(job), "cancel", "1")
    [result] = await queue.results([job])
    assert result.status is State.CANCELLED


async def test_a_running_job_ends_at_its_deadline(queue: RunningQueue) -> None:
    await queue.worker()
    seconds, microseconds = await queue.redis.time()
    [job] = await queue.submit("wait", deadline=seconds * 1000 + microseconds // 1000 + 700)
    [result] = await queue.results([job])
    assert result.status is State.EXPIRED


async def test_a_stopped_engine_is_replaced_while_its_process_lives(queue: RunningQueue) -> None:
    worker = await queue.worker(hang_seconds=1)
    [engine] = worker.children
    os.kill(engine, signal.SIGSTOP)
    jobs = await queue.submit(*["x"] * 20)
    assert {result.status for result in await queue.results(jobs)} == {State.COMPLETED}
    assert engine not in worker.children
