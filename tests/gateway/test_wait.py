"""The moments of a wait that no real connection meets on demand."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stoop.gateway.wait import CallerLeft, Wait

SECONDS = 10.0


async def stays() -> None:
    await asyncio.get_running_loop().create_future()


async def leaves() -> None:
    pass


class Work:
    """Works until it is cancelled, and cleans up by a call that takes a turn of the loop."""

    def __init__(self, begun: Callable[[], object] = lambda: None) -> None:
        self.begun = begun
        self.cleaned_up = False

    async def __call__(self) -> None:
        asyncio.get_running_loop().call_soon(self.begun)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            self.cleaned_up = True


def current() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


async def test_the_result_is_returned_and_an_end_after_it_means_nothing() -> None:
    wait = Wait(stays)
    assert await wait.run(asyncio.sleep(0, "result")) == "result"
    wait.end(CallerLeft())
    await asyncio.sleep(0)
    assert current().cancelling() == 0


async def test_work_is_cancelled_when_the_caller_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stoop.gateway.wait._UNWATCHED_SECONDS", 0.0)
    work = Work()
    async with asyncio.timeout(SECONDS):
        with pytest.raises(CallerLeft):
            await Wait(leaves).run(work())
    assert work.cleaned_up
    assert current().cancelling() == 0


async def test_work_is_cancelled_with_the_first_of_two_errors() -> None:
    wait = Wait(stays)

    def end_twice() -> None:
        wait.end(ValueError("first"))
        wait.end(ValueError("second"))

    work = Work(end_twice)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(ValueError, match="first"):
            await wait.run(work())
    assert work.cleaned_up
    assert current().cancelling() == 0


async def test_work_that_fails_while_it_is_cancelled_leaves_no_cancellation_behind() -> None:
    async def failing() -> None:
        asyncio.get_running_loop().call_soon(wait.end, CallerLeft())
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            raise OSError from None

    wait = Wait(stays)
    async with asyncio.timeout(SECONDS):
        with pytest.raises(OSError):
            await wait.run(failing())
    assert current().cancelling() == 0


async def test_a_cancellation_by_the_server_stays_one() -> None:
    wait = Wait(stays)

    async def serve() -> None:
        task = current()

        def end_and_cancel() -> None:
            wait.end(CallerLeft())
            task.cancel()

        await wait.run(Work(end_and_cancel)())

    serving = asyncio.create_task(serve())
    await asyncio.wait({serving}, timeout=SECONDS)
    assert serving.cancelled()
