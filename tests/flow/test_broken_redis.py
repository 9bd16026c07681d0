"""Whole workers on a Redis to which another program writes foreign values."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop_schemas import names
from stoop_schemas.state import State
from tests.flow.scripted import SECONDS, RunningQueue, running_queue


@pytest.fixture
async def queue(tmp_path: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    async with running_queue(tmp_path, redis_url) as queue:
        yield queue


async def test_a_worker_that_can_publish_no_more_ends_and_gives_its_jobs_back(queue: RunningQueue) -> None:
    worker = await queue.worker(lease_seconds=60, drain_seconds=600)
    [held] = await queue.submit("wait", stream=True)
    await queue.running(held)
    await queue.redis.xadd(names.dead(), {"last": "entry"}, id="18446744073709551615-18446744073709551615")
    await queue.redis.xadd(names.lane("interactive"), {"j": "no job"})
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 1
    assert "the worker cannot go on" in worker.log.read_text()
    state, attempt = await queue.redis.hmget(names.job(held), "state", "attempt")
    assert (state, attempt) == (b"queued", b"0"), "given back, and the attempt not counted"
    assert not [key async for key in queue.redis.scan_iter("stoop:*live:*")], "the lease is given back"


async def test_a_worker_stops_with_a_message_when_redis_may_delete_jobs(queue: RunningQueue) -> None:
    worker = await queue.worker(lease_seconds=1, drain_seconds=600)
    [held] = await queue.submit("wait", stream=True)
    await queue.running(held)
    await queue.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        async with asyncio.timeout(SECONDS):
            assert await worker.wait() != 0
    finally:
        await queue.redis.config_set("maxmemory-policy", "noeviction")
    assert "set maxmemory-policy noeviction" in worker.log.read_text()
    assert await queue.redis.hget(names.job(held), "state") == b"queued", "given back"


@pytest.mark.parametrize("field", ["attempt", "seq", "queued_at", "crashes"])
async def test_one_odd_field_costs_its_job_alone(queue: RunningQueue, field: str) -> None:
    worker = await queue.worker()
    await queue.redis.hset(names.job("evil"), mapping={field: "x"})
    await queue.redis.xadd(
        names.lane("interactive"), {"j": json.dumps({"id": "evil", "skill": "query", "question": "x"})}
    )
    [running] = await queue.submit("wait", stream=True)
    await queue.running(running)
    await queue.redis.hset(names.job(running), field, "x")
    await queue.client.cancel(running)
    evil, whole, broken_off = await queue.results(["evil", *await queue.submit("anything"), running])
    assert evil.failure is not None
    assert (evil.failure.code, whole.status, broken_off.status) == ("malformed", State.COMPLETED, State.CANCELLED)
    assert worker.returncode is None


async def test_keys_of_the_wrong_type_are_named_and_the_other_lane_goes_on(queue: RunningQueue) -> None:
    worker = await queue.worker()
    spoilt = [names.cancelled(), names.delayed(), names.tenants("interactive"), names.lane("interactive")]
    await queue.redis.delete(*spoilt, names.bell())
    for key in (*spoilt, names.bell()):
        await queue.redis.set(key, "x")
    jobs = await queue.submit(*["anything"] * 3, lane="bulk")
    assert {result.status for result in await queue.results(jobs)} == {State.COMPLETED}
    assert worker.returncode is None
    warnings = [line for line in worker.log.read_text().splitlines() if "wrong type" in line]
    assert sorted(json.loads(line)["key"] for line in warnings) == sorted(spoilt)
