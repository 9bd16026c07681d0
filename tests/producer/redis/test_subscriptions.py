"""Subscriptions over a scripted connection: events that no real one produces at a chosen moment."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from stoop.errors import QueueUnavailable
from stoop.redis.subscriptions import Subscriptions


class CancellationLosingConnection:
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


async def no_counts(counters: Sequence[str]) -> Sequence[object]:
    return [None] * len(counters)


async def test_it_closes_although_its_cancellation_was_lost() -> None:
    subscriptions = Subscriptions(CancellationLosingConnection, "here", silence=30.0, counts=no_counts)
    async with subscriptions.subscribe("a", "count"), asyncio.timeout(5):
        await subscriptions.close()


async def test_its_task_ends_although_the_cancellation_was_lost() -> None:
    before = asyncio.all_tasks()
    subscriptions = Subscriptions(CancellationLosingConnection, "here", silence=30.0, counts=no_counts)
    async with subscriptions.subscribe("a", "count"):
        [following] = {task for task in asyncio.all_tasks() - before if task.get_name() == "subscriptions"}
        following.cancel()
        await asyncio.wait({following}, timeout=5)
        assert following.cancelled()


class Counted:
    """Counts that a test sets; `checked` waits for the next check to have ended."""

    def __init__(self) -> None:
        self.count: object = 1
        self.asked: asyncio.Queue[Sequence[str]] = asyncio.Queue()

    async def __call__(self, counters: Sequence[str]) -> Sequence[object]:
        self.asked.put_nowait(counters)
        if isinstance(self.count, Exception):
            raise self.count
        return [self.count] * len(counters)

    async def checked(self) -> Sequence[str]:
        """Wait until a whole check has passed; the next one then begins."""
        await self.asked.get()
        return await self.asked.get()

    def forget(self) -> None:
        """Forget the checks so far. None is under way: nothing suspends a check between its call and its end."""
        while not self.asked.empty():
            self.asked.get_nowait()


async def test_many_silent_readers_cost_one_call_and_look_only_when_a_count_changes() -> None:
    counted = Counted()
    subscriptions = Subscriptions(CancellationLosingConnection, "here", silence=0.01, counts=counted)
    async with asyncio.timeout(20), contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(subscriptions.subscribe(f"channel-{i}", f"counter-{i}")) for i in range(50)
        ]
        for reader in readers:
            assert await anext(reader) is None, "every reader looks once"
        counted.forget()  # while the readers subscribed, the checks asked for fewer
        coming = [asyncio.ensure_future(anext(reader)) for reader in readers]
        assert set(await counted.checked()) == {f"counter-{i}" for i in range(50)}, "one call for all"
        await counted.checked()
        assert not any(future.done() for future in coming), "nobody looks again while nothing changes"
        for change in (2, None, QueueUnavailable("away")):
            counted.count = change
            assert await asyncio.gather(*coming) == [None] * 50
            coming = [asyncio.ensure_future(anext(reader)) for reader in readers]
        await subscriptions.close()
        for future in coming:
            future.cancel()
        await asyncio.wait(coming)


async def test_a_fault_in_one_check_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    subscriptions = Subscriptions(CancellationLosingConnection, "here", silence=0.01, counts=counted)
    async with asyncio.timeout(20), subscriptions.subscribe("a", "counter") as published:
        assert await anext(published) is None
        counted.count = ValueError("unforeseen")
        assert await anext(published) is None, "the reader looks for itself"
        assert "unforeseen" in caplog.text
        counted.count = 2
        counted.forget()
        await counted.checked()
        await subscriptions.close()


async def test_the_next_reader_starts_the_checks_again_if_they_ended() -> None:
    before = asyncio.all_tasks()
    subscriptions = Subscriptions(CancellationLosingConnection, "here", silence=0.01, counts=no_counts)
    async with asyncio.timeout(20), subscriptions.subscribe("a", "counter"):
        [checking] = {task for task in asyncio.all_tasks() - before if task.get_name() == "silences"}
        checking.cancel()
        await asyncio.wait({checking})
        async with subscriptions.subscribe("b", "counter") as published:
            assert await anext(published) is None
        await subscriptions.close()


async def test_a_reader_looks_after_the_last_message_and_in_a_long_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, connection = Counted(), CancellationLosingConnection()
    subscriptions = Subscriptions(lambda: connection, "here", silence=0.01, counts=counted)
    async with asyncio.timeout(20), subscriptions.subscribe("a", "counter") as published:
        assert await anext(published) is None
        # a message behind this one may be lost before the next check, and the count never changes after that
        connection.replies.put_nowait([b"message", b"a", b"one"])
        assert await anext(published) == b"one"
        assert await anext(published) is None
        await subscriptions.close()
    monkeypatch.setattr("stoop.redis.subscriptions._ANYWAY_SECONDS", 0.03)
    patient = Subscriptions(CancellationLosingConnection, "here", silence=0.01, counts=counted)
    async with asyncio.timeout(20), patient.subscribe("a", "counter") as published:
        assert [await anext(published) for _ in range(3)] == [None] * 3
        await patient.close()
