"""What no real queue does at a wanted moment."""

import asyncio
from collections.abc import Sequence

import pytest

from stoop.errors import ClientUnusable, IdempotencyConflict, QueueUnavailable
from stoop.redis.joint_submission import JointSubmission
from stoop_schemas.job import Job
from tests.contract.queues import new_job

SOON = 10.0


class Lane:
    """Takes all jobs of a call, or raises: for a job `refused` a conflict, while `away` that it cannot be reached."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.away = False
        self.opened = asyncio.Event()
        self.opened.set()

    async def put(self, jobs: Sequence[Job]) -> list[str]:
        ids = [job.id for job in jobs]
        self.calls.append(ids)
        await self.opened.wait()
        if self.away:
            raise QueueUnavailable("away")
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
