from collections.abc import AsyncIterator

import pytest

from stoop.client.transport import Transport
from stoop_worker.jobs.broker import Broker
from tests.contract.queues import InMemory, OnRedis, QueueUnderTest


@pytest.fixture(params=["memory", "redis"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[QueueUnderTest]:
    on_redis = request.param == "redis"
    queue: QueueUnderTest = OnRedis(request.getfixturevalue("redis_url")) if on_redis else InMemory()
    yield queue
    await queue.close()


@pytest.fixture
async def on_redis(redis_url: str) -> AsyncIterator[OnRedis]:
    queue = OnRedis(redis_url)
    yield queue
    await queue.close()


@pytest.fixture
async def broker(queue: QueueUnderTest) -> AsyncIterator[Broker]:
    broker = queue.broker()
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def transport(queue: QueueUnderTest) -> AsyncIterator[Transport]:
    transport = queue.transport()
    yield transport
    await transport.close()
