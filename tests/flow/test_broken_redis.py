"""Whole workers on a Redis to which another program writes foreign values."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stoop_schemas import names
from stoop_schemas.state import State
from tests.flow.scripted import SECONDS, Floor, floor


@pytest.fixture
async def ground(tmp_path: Path, redis_url: str) -> AsyncIterator[Floor]:
    async with floor(tmp_path, redis_url) as ground:
        yield ground


async def test_a_worker_that_can_publish_no_more_ends_and_gives_its_jobs_back(ground: Floor) -> None:
    worker = await ground.worker(lease_seconds=60, drain_seconds=600)
    [held] = await ground.submit("wait", stream=True)
    await ground.running(held)
    await ground.redis.xadd(names.dead(), {"last": "entry"}, id="18446744073709551615-18446744073709551615")
    await ground.redis.xadd(names.lane("interactive"), {"j": "no job"})
    async with asyncio.timeout(SECONDS):
        assert await worker.wait() == 1
    assert "the worker cannot go on" in worker.log.read_text()
    state, attempt = await ground.redis.hmget(names.job(held), "state", "attempt")
    assert (state, attempt) == (b"queued", b"0"), "given back, and the attempt not counted"
    assert not [key async for key in ground.redis.scan_iter("stoop:*live:*")], "the lease is given back"


async def test_a_worker_stops_with_a_message_when_redis_may_delete_jobs(ground: Floor) -> None:
    worker = await ground.worker(lease_seconds=1, drain_seconds=600)
    [held] = await ground.submit("wait", stream=True)
    await ground.running(held)
    await ground.redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        async with asyncio.timeout(SECONDS):
            assert await worker.wait() != 0
    finally:
        await ground.redis.config_set("maxmemory-policy", "noeviction")
    assert "set maxmemory-policy noeviction" in worker.log.read_text()
    assert await ground.redis.hget(names.job(held), "state") == b"queued", "given back"


@pytest.mark.parametrize("field", ["attempt", "seq", "queued_at", "crashes"])
async def test_one_odd_field_costs_its_job_alone(ground: Floor, field: str) -> None:
    worker = await ground.worker()
    await ground.redis.hset(names.job("evil"), mapping={field: "x"})
    await ground.redis.xadd(
        names.lane("interactive"), {"j": json.dumps({"id": "evil", "skill": "query", "question": "x"})}
    )
    [running] = await ground.submit("wait", stream=True)
    await ground.running(running)
    await ground.redis.hset(names.job(running), field, "x")
    await ground.client.cancel(running)
    evil, whole, broken_off = await ground.results(["evil", *await ground.submit("anything"), running])
    assert evil.failure is not None
    assert (evil.failure.code, whole.status, broken_off.status) == ("malformed", State.COMPLETED, State.CANCELLED)
    assert worker.returncode is None


async def test_keys_of_the_wrong_type_are_named_and_the_other_lane_goes_on(ground: Floor) -> None:
    worker = await ground.worker()
    spoilt = [names.cancelled(), names.delayed(), names.tenants("interactive"), names.lane("interactive")]
    await ground.redis.delete(*spoilt, names.bell())
    for key in (*spoilt, names.bell()):
        await ground.redis.set(key, "x")
    jobs = await ground.submit(*["anything"] * 3, lane="bulk")
    assert {result.status for result in await ground.results(jobs)} == {State.COMPLETED}
    assert worker.returncode is None
    warnings = [line for line in worker.log.read_text().splitlines() if "wrong type" in line]
    assert sorted(json.loads(line)["key"] for line in warnings) == sorted(spoilt)
