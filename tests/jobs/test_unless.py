"""Work that a future interrupts: it ends when asked, keeps its result, and leaves other cancellations alone."""

import asyncio

import pytest

from stoop_worker.jobs.unless import Unless


@pytest.fixture
async def stop() -> "asyncio.Future[str]":
    return asyncio.get_running_loop().create_future()


async def test_work_is_interrupted_and_its_task_goes_on(stop: "asyncio.Future[str]") -> None:
    asyncio.get_running_loop().call_soon(stop.set_result, "enough")
    with Unless(stop) as work:
        await asyncio.get_running_loop().create_future()
    assert work.stopped
    await asyncio.sleep(0)  # nothing is left of the cancellation


async def test_work_that_ends_by_itself_keeps_its_result(stop: "asyncio.Future[str]") -> None:
    with Unless(stop) as work:
        await asyncio.sleep(0)
    stop.set_result("too late")
    await asyncio.sleep(0)
    assert not work.stopped


async def test_a_future_that_ends_with_the_work_does_not_interrupt_what_comes_next(stop: "asyncio.Future[str]") -> None:
    stop.set_result("just now")
    with Unless(stop) as work:
        pass
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not work.stopped


async def test_errors_of_the_work_come_through(stop: "asyncio.Future[str]") -> None:
    with pytest.raises(ValueError, match="broken"), Unless(stop):
        raise ValueError("broken")


@pytest.mark.parametrize("also_stopped", [False, True])
async def test_a_task_that_others_cancel_is_cancelled(stop: "asyncio.Future[str]", also_stopped: bool) -> None:
    async def work() -> None:
        with Unless(stop):
            await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    if also_stopped:
        stop.set_result("enough")
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_limit_inside_does_not_take_the_interruption_for_its_own(stop: "asyncio.Future[str]") -> None:
    async def work() -> str:
        with Unless(stop):
            async with asyncio.timeout(60):
                await asyncio.get_running_loop().create_future()
        return stop.result()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    stop.set_result("enough")
    assert await task == "enough"
