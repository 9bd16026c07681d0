"""Workers that receive one signal to end, and two."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop.demo.embedded import EmbeddedRedis
from stoop_schemas import names
from stoop_schemas.state import State
from stoop_worker.shutdown import LAST_RESORT_SECONDS
from tests.flow.scripted import SECONDS, RunningQueue, running_queue


@pytest.fixture
async def queue(tmp_path: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    async with running_queue(tmp_path, redis_url) as queue:
        yield queue


def engines(queue: RunningQueue) -> list[int]:
    """The engines of workers that have been started, ready or not."""
    try:
        return [engine for worker in queue.workers for engine in worker.children]
    except (AssertionError, OSError):
        return []


async def test_under_load_nothing_is_lost_and_no_attempt_is_wasted(queue: RunningQueue) -> None:
    first = await queue.worker(drain_seconds=1)
    short = await queue.submit(*["sleep 0.1"] * 200)
    [long] = await queue.submit("wait", stream=True)
    short += await queue.submit(*["sleep 0.1"] * 200)
    await queue.running(long)
    began = time.monotonic()
    assert await first.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 1 + 5
    assert await queue.redis.hget(names.job(long), "state") == b"queued"
    assert await queue.redis.xlen(names.lane("interactive")) > 100, "it stopped claiming"
    await queue.worker(permits=64)
    results = await queue.results(short)
    assert {result.status for result in results} == {State.COMPLETED}
    assert {result.attempt for result in results} == {1}
    await queue.client.cancel(long)
    [result] = await queue.results([long])
    assert (result.status, result.attempt) == (State.CANCELLED, 1)
    assert await queue.left() == {}


async def test_jobs_that_fit_in_the_grace_period_are_finished(queue: RunningQueue) -> None:
    worker = await queue.worker(drain_seconds=30)
    [marker, *jobs] = await queue.submit("wait", *["sleep 0.7"] * 5, stream=True)
    await queue.running(marker)
    ending = asyncio.create_task(worker.end(signal.SIGTERM))
    results = await queue.results(jobs)
    assert {result.status for result in results} == {State.COMPLETED}
    await queue.client.cancel(marker)
    assert await ending == 0
    assert await queue.left() == {}


@pytest.mark.parametrize("question", ["wait", "hang"])
async def test_a_second_signal_gives_the_jobs_back_at_once(queue: RunningQueue, question: str) -> None:
    worker = await queue.worker(drain_seconds=600, lease_seconds=60)
    [job] = await queue.submit("wait", stream=True)
    await queue.running(job)
    await queue.submit(question)
    worker.send(signal.SIGTERM)
    began = time.monotonic()
    assert await worker.end(signal.SIGINT) == 0
    assert time.monotonic() - began < 5
    assert await queue.redis.hget(names.job(job), "state") == b"queued"
    assert not [key async for key in queue.redis.scan_iter("stoop:*live:*")], "the lease is given back"


async def test_a_worker_that_is_stuck_ends_by_the_last_resort(queue: RunningQueue, redis_server: EmbeddedRedis) -> None:
    worker = await queue.worker(drain_seconds=600)
    [job] = await queue.submit("wait", stream=True)
    await queue.running(job)
    await queue.redis.execute_command("CLIENT", "PAUSE", 60_000, "ALL")  # far longer than the last resort waits
    worker.send(signal.SIGTERM)
    began = time.monotonic()
    assert await worker.end(signal.SIGINT) == 1
    assert time.monotonic() - began < LAST_RESORT_SECONDS + 10
    redis_server.restart()  # which ends the pause


async def test_a_worker_that_is_still_starting_ends_at_once(queue: RunningQueue) -> None:
    starting = asyncio.create_task(queue.worker())
    async with asyncio.timeout(SECONDS):
        while not engines(queue):
            await asyncio.sleep(0)
    queue.workers[0].send(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="ended with 0"):
        await starting


async def test_a_worker_that_waits_for_redis_at_its_start_ends_at_once(queue: RunningQueue) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    starting = asyncio.create_task(queue.worker(redis_url=nowhere))
    async with asyncio.timeout(SECONDS):
        while not (queue.workers and "this worker waits for it" in _log_of(queue)):
            await asyncio.sleep(0)
    began = time.monotonic()
    queue.workers[0].send(signal.SIGTERM)
    with pytest.raises(RuntimeError, match="ended with 0"):
        await starting
    assert time.monotonic() - began < 5


def _log_of(queue: RunningQueue) -> str:
    log = queue.workers[0].log
    return log.read_text() if log.exists() else ""
