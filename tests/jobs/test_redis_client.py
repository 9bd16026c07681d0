"""What the client adds to redis-py's."""

import asyncio

import pytest

from worker.jobs.redis_client import RedisClient


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


async def test_who_was_cancelled_may_still_say_goodbye(redis_url: str) -> None:
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
