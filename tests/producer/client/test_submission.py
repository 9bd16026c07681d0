import asyncio
from collections.abc import Sequence

import pytest

from stoop.client.outage import Retrying
from stoop.client.submission import CHUNK, Submitter, submit_each
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull, QueueUnavailable
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.skill import Skill


def job(number: int, *, lane: str = "interactive", tenant: str | None = None) -> Job:
    return Job(id=f"job-{number}", skill=Skill.QUERY, question="?", lane=lane, tenant=tenant)


class Lanes:
    """Takes all the jobs of a call or none: each lane holds `bound` jobs, some ids are refused for themselves."""

    def __init__(self, bound: int = 1_000_000, *, conflicting: str = "", invalid: str = "") -> None:
        self.bound, self.conflicting, self.invalid = bound, conflicting, invalid
        self.held: dict[str, str] = {}
        self.calls = 0

    async def put(self, jobs: Sequence[Job]) -> list[str]:
        self.calls += 1
        for one in jobs:
            if one.id == self.conflicting:
                raise IdempotencyConflict("another")
            if one.id == self.invalid:
                raise InvalidJob(Failure.of(FailureCode.INVALID_ARGUMENT, "no"))
        for lane in {one.lane for one in jobs}:
            fresh = sum(one.lane == lane and one.id not in self.held for one in jobs)
            if list(self.held.values()).count(lane) + fresh > self.bound:
                raise QueueFull(7.0)
        self.held |= {one.id: one.lane for one in jobs}
        return [one.id for one in jobs]


async def test_each_job_has_its_own_id_or_refusal() -> None:
    lanes = Lanes(conflicting="job-40", invalid="job-200")
    jobs = [job(number) for number in range(300)]
    outcomes = await submit_each(lanes.put, jobs)
    assert [i for i, each in enumerate(outcomes) if not isinstance(each, str)] == [40, 200]
    assert isinstance(outcomes[40], IdempotencyConflict)
    assert isinstance(outcomes[200], InvalidJob)
    assert list(lanes.held) == [one.id for one in jobs if one.id not in ("job-40", "job-200")]


async def test_without_a_refusal_128_jobs_take_one_call() -> None:
    lanes = Lanes()
    assert len(await submit_each(lanes.put, [job(number) for number in range(3 * CHUNK)])) == 3 * CHUNK
    assert lanes.calls == 3


async def test_a_full_lane_is_not_tried_for_jobs_beyond_its_bound() -> None:
    lanes = Lanes(bound=100)
    jobs = [job(number) for number in range(1000)]
    outcomes = await submit_each(lanes.put, jobs)
    assert outcomes[:100] == [one.id for one in jobs[:100]]
    assert all(isinstance(each, QueueFull) and each.retry_after == 7.0 for each in outcomes[100:])
    assert lanes.calls < 20


async def test_a_full_lane_holds_back_no_other_lane() -> None:
    lanes = Lanes(bound=3)
    jobs = [job(number, lane="bulk" if number < 5 else "interactive") for number in range(8)]
    outcomes = await submit_each(lanes.put, jobs)
    assert [isinstance(each, str) for each in outcomes] == [True] * 3 + [False] * 2 + [True] * 3


async def test_a_submitter_outlasts_an_outage() -> None:
    lanes, away = Lanes(), 1

    async def put(jobs: Sequence[Job]) -> list[str]:
        nonlocal away
        if away:
            away -= 1
            raise QueueUnavailable("gone")
        return await lanes.put(jobs)

    async with Submitter(put, Retrying(pause=skip)) as submitter:
        assert await submitter.submit(job(1)) == "job-1"
    away = 1
    with pytest.raises(QueueUnavailable):
        await submit_each(put, [job(2)])


async def test_a_submitter_submits_the_jobs_that_wait_in_one_call() -> None:
    lanes = Lanes(conflicting="job-7")
    async with Submitter(lanes.put, Retrying()) as submitter:
        jobs = [job(number) for number in range(20) if number != 7]
        assert await asyncio.gather(*map(submitter.submit, jobs)) == [one.id for one in jobs]
        assert lanes.calls == 1
        with pytest.raises(IdempotencyConflict):
            await submitter.submit(job(7))


async def test_a_submitter_waits_for_the_queues_retry_after() -> None:
    lanes, pauses, notes = Lanes(bound=5), [], []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        lanes.held.clear()

    async with Submitter(lanes.put, Retrying(pause=pause, note=notes.append)) as submitter:
        ids = await asyncio.gather(*(submitter.submit(job(number)) for number in range(12)))
    assert ids == [f"job-{number}" for number in range(12)]
    assert pauses == [7.0, 7.0]
    assert notes == ["the queue is full; retrying in 7 s"] * 2


async def test_an_interrupted_pause_ends_the_waiting_jobs() -> None:
    lanes = Lanes(bound=2)

    async def pause(seconds: float) -> None:
        raise KeyError("stopped")

    async with Submitter(lanes.put, Retrying(pause=pause)) as submitter:
        ended = await asyncio.gather(*(submitter.submit(job(number)) for number in range(4)), return_exceptions=True)
    assert ended[:2] == ["job-0", "job-1"]
    assert all(isinstance(error, KeyError) for error in ended[2:])


async def skip(seconds: float) -> None:
    """Wait for nothing."""
