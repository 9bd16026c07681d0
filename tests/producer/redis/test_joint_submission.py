"""Joint submission to a scripted queue: events that no real queue produces at a chosen moment."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from stoop.errors import ClientUnusable, IdempotencyConflict, QueueFull, QueueUnavailable
from stoop.redis.joint_submission import JointSubmission
from stoop_schemas.job import Job
from tests.contract.queues import new_job

SOON = 10.0


async def until(reached: Callable[[], object]) -> None:
    """Wait for it, turn by turn of the event loop."""
    async with asyncio.timeout(SOON):
        while not reached():
            await asyncio.sleep(0)


async def outcomes(tasks: Sequence["asyncio.Task[str]"]) -> list[str | BaseException]:
    async with asyncio.timeout(SOON):
        return await asyncio.gather(*tasks, return_exceptions=True)


class Lane:
    """Takes all jobs of a call, or raises: for a job `refused` a conflict, or that it is `full` or `away`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.away = self.full = False
        self.opened = asyncio.Event()
        self.opened.set()

    async def put(self, jobs: Sequence[Job]) -> list[str]:
        ids = [job.id for job in jobs]
        self.calls.append(ids)
        await self.opened.wait()
        if self.full:
            raise QueueFull(2.5)
        if self.away:
            raise QueueUnavailable("away") from OSError("no route")
        if "refused" in ids:
            raise IdempotencyConflict("refused", taken="id")
        return ids

    @staticmethod
    def grouped(jobs: Sequence[Job]) -> list[list[int]]:
        lanes = dict.fromkeys(job.lane for job in jobs)
        return [[i for i, job in enumerate(jobs) if job.lane == lane] for lane in lanes]


@pytest.fixture
def lane() -> Lane:
    return Lane()


@pytest.fixture
def joint(lane: Lane) -> JointSubmission:
    return JointSubmission(lane.put, lane.grouped)


async def test_jobs_that_come_at_once_are_one_call_for_each_group(lane: Lane, joint: JointSubmission) -> None:
    jobs = [new_job(lane=("interactive", "bulk")[i % 2]) for i in range(6)]
    assert await asyncio.gather(*map(joint.submit, jobs)) == [job.id for job in jobs]
    assert lane.calls == [[job.id for job in jobs[start::2]] for start in (0, 1)]
    assert await joint.submit(jobs[0]) == jobs[0].id
    assert lane.calls[2:] == [[jobs[0].id]]


async def test_a_refusal_meets_its_own_job_alone(joint: JointSubmission) -> None:
    jobs = [new_job(), new_job(id="refused"), new_job()]
    first, refused, last = await asyncio.gather(*map(joint.submit, jobs), return_exceptions=True)
    assert (first, last) == (jobs[0].id, jobs[2].id)
    assert isinstance(refused, IdempotencyConflict)


async def test_every_caller_learns_that_the_queue_is_away(lane: Lane, joint: JointSubmission) -> None:
    lane.away = True
    errors = await asyncio.gather(*(joint.submit(new_job()) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [QueueUnavailable] * 3
    assert [str(error) for error in errors] == ["away"] * 3
    assert all(isinstance(error.__cause__, OSError) for error in errors if isinstance(error, Exception))
    assert len({id(error) for error in errors}) == 3, "each caller raises an error of its own"
    assert len(lane.calls) == 1


async def test_the_job_of_a_caller_that_left_before_the_call_is_not_put(lane: Lane, joint: JointSubmission) -> None:
    left, stays = new_job(), new_job()
    leaving = asyncio.create_task(joint.submit(left))
    staying = asyncio.create_task(joint.submit(stays))
    await asyncio.sleep(0)  # both have come, and the call begins in the next turn
    leaving.cancel()
    assert await staying == stays.id
    assert lane.calls == [[stays.id]]


async def test_a_caller_that_leaves_during_the_call_takes_no_other_along(lane: Lane, joint: JointSubmission) -> None:
    lane.opened.clear()
    jobs = [new_job(), new_job()]
    leaving, staying = (asyncio.create_task(joint.submit(job)) for job in jobs)
    async with asyncio.timeout(SOON):
        while not lane.calls:
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        lane.opened.set()
        assert await staying == jobs[1].id
    assert leaving.cancelled()


async def test_closing_ends_the_calls(lane: Lane, joint: JointSubmission) -> None:
    lane.opened.clear()
    submitting = asyncio.create_task(joint.submit(new_job()))
    async with asyncio.timeout(SOON):
        while not lane.calls:
            await asyncio.sleep(0)
        await joint.close()
        with pytest.raises(ClientUnusable):
            await submitting


async def test_a_refusal_keeps_its_fields(lane: Lane, joint: JointSubmission) -> None:
    lane.full = True
    with pytest.raises(QueueFull, match=r"^the queue is full: submit again in 2.5 s") as refused:
        await joint.submit(new_job())
    assert refused.value.retry_after == 2.5


async def test_a_caller_that_leaves_before_a_refusal_is_not_put_again(lane: Lane, joint: JointSubmission) -> None:
    lane.opened.clear()
    left, refused, stays = new_job(), new_job(id="refused"), new_job()
    tasks = [asyncio.create_task(joint.submit(job)) for job in (left, refused, stays)]
    await until(lambda: lane.calls)
    tasks[0].cancel()
    await asyncio.wait({tasks[0]})
    lane.opened.set()
    _, error, job_id = await outcomes(tasks)
    assert isinstance(error, IdempotencyConflict) and job_id == stays.id
    assert lane.calls[1:] == [["refused"], [stays.id]]


async def test_closing_before_the_calls_begin_puts_nothing(lane: Lane, joint: JointSubmission) -> None:
    tasks = [asyncio.create_task(joint.submit(new_job())) for _ in range(3)]
    await asyncio.sleep(0)  # all have come, and the call begins in the next turn
    await joint.close()
    assert [type(error) for error in await outcomes(tasks)] == [ClientUnusable] * 3
    with pytest.raises(ClientUnusable):
        await joint.submit(new_job())
    assert lane.calls == []


async def test_closing_ends_calls_that_have_not_taken_a_step(lane: Lane) -> None:
    """The queue closes in the very turn in which the call begins."""
    closing: list[asyncio.Task[None]] = []

    def grouped(jobs: Sequence[Job]) -> list[list[int]]:
        closing.append(loop.create_task(joint.close()))
        return lane.grouped(jobs)

    loop, joint = asyncio.get_running_loop(), JointSubmission(lane.put, grouped)
    tasks = [asyncio.create_task(joint.submit(new_job())) for _ in range(2)]
    assert [type(error) for error in await outcomes(tasks)] == [ClientUnusable] * 2
    await closing[0]
    assert lane.calls == []


async def test_closing_ends_jobs_put_one_by_one_after_a_refusal(lane: Lane) -> None:
    closing: list[asyncio.Task[None]] = []

    async def put(jobs: Sequence[Job]) -> list[str]:
        if len(jobs) > 1:
            closing.append(asyncio.create_task(joint.close()))  # its turn is before that of the single calls
        return await lane.put(jobs)

    joint = JointSubmission(put, lane.grouped)
    tasks = [asyncio.create_task(joint.submit(job)) for job in (new_job(), new_job(id="refused"))]
    assert [type(error) for error in await outcomes(tasks)] == [ClientUnusable] * 2
    await closing[0]
    assert len(lane.calls) == 1
