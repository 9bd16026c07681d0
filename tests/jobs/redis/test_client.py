"""The behaviour that the client adds to redis-py's."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ResponseError

from stoop_worker.errors import ConfigError, QueueFault, QueueUnavailable
from stoop_worker.jobs.redis.client import RedisClient


@pytest.mark.parametrize("turns", range(16))
async def test_a_cancellation_is_never_lost(redis_url: str, turns: int) -> None:
    client = RedisClient(redis_url, timeout=10.0)
    call = asyncio.create_task(client.call("XREAD", "BLOCK", 300, "STREAMS", "nothing", "$"))
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await client.call("PING")
    await client.close()


async def test_a_cancelled_task_may_still_call_redis(redis_url: str) -> None:
    client = RedisClient(redis_url, timeout=10.0)

    async def leave() -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return bool(await client.call("PING"))
        return False

    leaving = asyncio.create_task(leave())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await leaving
    await client.close()


async def test_an_error_of_the_server_that_no_repetition_passes_is_a_fault(redis_url: str) -> None:
    client = RedisClient(redis_url, timeout=10.0)
    await client.call("SET", "text", "x")
    with pytest.raises(QueueFault, match="WRONGTYPE") as caught:
        await client.call("XLEN", "text")
    assert isinstance(caught.value.__cause__, ResponseError)
    await client.close()


async def test_a_database_that_redis_lacks_is_a_fault_of_the_configuration(redis_url: str) -> None:
    client = RedisClient(redis_url.removesuffix("/0") + "/99", timeout=10.0)
    with pytest.raises(ConfigError, match=r"no such database: end STOOP_REDIS_URL .* from 0 to 15"):
        await client.call("PING")
    await client.close()


async def test_a_connection_that_redis_py_closed_under_a_call_is_an_outage(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = RedisClient(redis_url, timeout=10.0)
    writer: Any = None

    async def send(*command: object) -> None:
        writer.writelines(command)

    monkeypatch.setattr(client, "_execute", send)
    with pytest.raises(QueueUnavailable, match="the connection was closed"):
        await client.call("PING")
    writer = object()
    with pytest.raises(AttributeError):  # any other is a defect
        await client.call("PING")
    await client.close()


async def test_a_server_that_does_not_answer_is_an_outage() -> None:
    asked = asyncio.Event()

    async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as server:
        client = RedisClient(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0", timeout=0.2)
        with pytest.raises(QueueUnavailable, match=r"no answer in 0\.2 s"):
            await client.call("PING")
        await client.close()
    assert asked.is_set()
