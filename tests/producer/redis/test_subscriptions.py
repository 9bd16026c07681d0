"""What no real connection does at a wanted moment."""

import asyncio
from typing import Any

from stoop.redis.subscriptions import Subscriptions


class Forgetful:
    """A connection that loses a cancellation which meets a reply, as redis-py on Python 3.11 may."""

    is_connected = True

    def __init__(self) -> None:
        self.replies: asyncio.Queue[list[object]] = asyncio.Queue()

    async def connect(self) -> None:
        pass

    async def send_command(self, command: str, *names: str, check_health: bool = True) -> None:
        for name in names:
            self.replies.put_nowait([command.lower().encode(), name.encode(), 1])

    async def read_response(self, **options: Any) -> list[object]:
        try:
            return await self.replies.get()
        except asyncio.CancelledError:
            return [b"message", b"a", b"late"]

    async def disconnect(self, *, nowait: bool = False) -> None:
        pass


async def test_it_closes_though_its_cancellation_was_lost() -> None:
    subscriptions = Subscriptions(Forgetful, "here", silence=30.0)
    async with subscriptions.subscribe("a"), asyncio.timeout(5):
        await subscriptions.close()


async def test_its_task_ends_though_the_cancellation_was_lost() -> None:
    before = asyncio.all_tasks()
    subscriptions = Subscriptions(Forgetful, "here", silence=30.0)
    async with subscriptions.subscribe("a"):
        [following] = asyncio.all_tasks() - before
        following.cancel()
        await asyncio.wait({following}, timeout=5)
        assert following.cancelled()
