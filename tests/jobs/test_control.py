import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from stoop_schemas import names
from stoop_worker.jobs.control import Control
from tests.support.engine import Tally


class ReceivedCommands:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.tally = Tally()

    def cancel(self, job_id: str) -> None:
        self.heard.append(job_id)
        self.tally.add()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator["Redis[bytes]"]:
    async with Redis.from_url(redis_url, protocol=2) as redis:
        yield redis


@pytest.fixture
async def received(redis_url: str) -> AsyncIterator[ReceivedCommands]:
    received = ReceivedCommands()
    running = asyncio.create_task(Control(redis_url, received.cancel).run())
    yield received
    while not running.done():
        running.cancel()
        await asyncio.wait({running}, timeout=0.5)


async def order(redis: "Redis[bytes]", message: bytes) -> None:
    """Publish until the worker listens."""
    async with asyncio.timeout(20):
        while not await redis.publish(names.CONTROL, message):
            await asyncio.sleep(0)


async def test_a_cancel_order_is_reported_and_unreadable_messages_are_skipped(
    redis: "Redis[bytes]", received: ReceivedCommands
) -> None:
    deep = b'{"verb":"cancel","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    odd = (b"{", b"\xff", b'{"verb":"\xff"}', deep, b'{"verb":"dance"}', b'{"id":"x"}')
    for message in (*odd, b'{"verb":"cancel","id":"a"}'):
        await order(redis, message)
    await received.tally.wait_for(1)
    assert received.heard == ["a"]


async def test_it_listens_again_after_a_cut(redis: "Redis[bytes]", received: ReceivedCommands) -> None:
    await order(redis, b'{"verb":"cancel","id":"a"}')
    await received.tally.wait_for(1)
    assert await redis.client_kill_filter(_type="pubsub")
    await order(redis, b'{"verb":"cancel","id":"b"}')
    await received.tally.wait_for(2)
    assert received.heard == ["a", "b"]


async def test_it_listens_on_after_a_silence(redis: "Redis[bytes]", redis_url: str) -> None:
    received = ReceivedCommands()
    running = asyncio.create_task(Control(redis_url, received.cancel, quiet=0.02).run())
    try:
        async with asyncio.timeout(20):
            while (await redis.info("commandstats")).get("cmdstat_ping", {"calls": 0})["calls"] < 3:
                await asyncio.sleep(0.01)
        assert not running.done()
        await order(redis, b'{"verb":"cancel","id":"a"}')
        await received.tally.wait_for(1)
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=5)
    assert received.heard == ["a"]


@pytest.mark.parametrize("turns", range(24))
async def test_it_can_be_ended_at_any_moment(redis: "Redis[bytes]", redis_url: str, turns: int) -> None:
    received = ReceivedCommands()
    running = asyncio.create_task(Control(redis_url, received.cancel).run())
    await order(redis, b'{"verb":"cancel","id":"a"}')
    published = asyncio.create_task(redis.publish(names.CONTROL, b'{"verb":"cancel","id":"b"}'))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait({running})
    assert running.cancelled()
    await published
