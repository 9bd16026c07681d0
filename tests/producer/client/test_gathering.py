import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from stoop import AsyncClient, InvalidJob, JobFailed, QueueFull, TimedOut
from stoop.client import job_client
from stoop.config import ProducerConfig
from stoop.errors import IdempotencyConflict, QueueUnavailable, StoopError
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from tests.producer.scripted import ScriptedTransport, answer, failing
from tests.project.modules import ROOT


def job(number: int, question: str = "how many?") -> Job:
    return Job(id=f"job-{number}", skill=Skill.QUERY, question=question)


class Line:
    """Jobs that are pulled one by one, and how many were."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs, self.pulled = jobs, 0

    def __iter__(self) -> Iterator[Job]:
        for one in self.jobs:
            self.pulled += 1
            yield one


class Slow(ScriptedTransport):
    """Answers on demand, and accepts at most `bound` unanswered jobs."""

    def __init__(self, bound: int = 1000) -> None:
        super().__init__()
        self.bound = bound
        self.refusals = 0
        self.most = 0
        self.arrived = asyncio.Condition()

    @property
    def waiting(self) -> list[Job]:
        return [one for one in self.submitted if one.id not in self.results]

    async def submit(self, jobs: "list[Job]") -> list[str]:  # type: ignore[override]
        try:
            if len(self.waiting) + len(jobs) > self.bound:
                self.refusals += 1
                raise QueueFull(0.0)
            return await super().submit(jobs)
        finally:
            self.most = max(self.most, len(self.waiting))
            async with self.arrived:
                self.arrived.notify_all()

    async def answer(self, one: Job) -> None:
        self.publish(*answer(one))

    async def answer_all(self, count: int, *, depth: int, refusals: int = 0) -> None:
        """Answer `count` jobs, each once `depth` jobs wait (or all that are left) and the refusals have come."""
        for left in range(count, 0, -1):
            async with self.arrived:
                enough = min(left, depth)
                while len(self.waiting) < enough or self.refusals < refusals:
                    await self.arrived.wait()
            await self.answer(self.waiting[0])


def connect(transport: ScriptedTransport, **config: object) -> AsyncClient:
    return AsyncClient(ProducerConfig(**config), transport=transport)


async def test_outcomes_come_as_jobs_end() -> None:
    transport = Slow()
    jobs = [job(number) for number in range(3)]
    async with connect(transport) as client:
        outcomes = client.gather(jobs)
        first = asyncio.create_task(anext(outcomes))
        async with transport.arrived:
            await transport.arrived.wait_for(lambda: len(transport.submitted) == 3)
        await transport.answer(jobs[1])
        ended, result = await first
        assert ended == jobs[1]
        assert isinstance(result, Result) and result.id == "job-1"
        await transport.answer(jobs[2])
        await transport.answer(jobs[0])
        assert {one.id async for one, _ in outcomes} == {"job-0", "job-2"}


async def test_no_more_are_pulled_than_the_window_holds() -> None:
    transport = Slow()
    line = Line([job(number) for number in range(50)])
    async with connect(transport) as client:
        outcomes = client.gather(line, window=5)
        answering = asyncio.create_task(transport.answer_all(50, depth=5))
        taken = 0
        async for _ in outcomes:
            taken += 1
            assert line.pulled <= taken + 5
        await answering
    assert (taken, transport.most) == (50, 5)


async def test_an_asynchronous_source_is_followed_while_it_waits() -> None:
    transport, more = ScriptedTransport(answer), asyncio.Event()

    async def line() -> AsyncIterator[Job]:
        yield job(0)
        await more.wait()
        yield job(1)

    async with connect(transport) as client:
        outcomes = client.gather(line())
        assert (await anext(outcomes))[0].id == "job-0"
        more.set()
        assert [one.id async for one, _ in outcomes] == ["job-1"]


async def test_a_full_lane_is_tried_again() -> None:
    transport = Slow(bound=3)
    async with connect(transport) as client:
        answering = asyncio.create_task(transport.answer_all(20, depth=3, refusals=1))
        ended = [one.id async for one, _ in client.gather(job(number) for number in range(20))]
        await answering
    assert sorted(ended) == sorted(f"job-{number}" for number in range(20))
    assert transport.most == 3


async def test_a_failure_of_one_job_is_only_its_own_outcome() -> None:
    transport = ScriptedTransport(failing(Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing there")))

    class Refusing(ScriptedTransport):
        async def submit(self, jobs: "list[Job]") -> list[str]:  # type: ignore[override]
            if any(one.id == "job-1" for one in jobs):
                raise IdempotencyConflict("another")
            return await super().submit(jobs)

    transport = Refusing(transport.script)
    jobs = [job(0), job(1), job(2, question="")]
    async with connect(transport) as client:
        outcomes: dict[str, StoopError | Result] = {one.id: outcome async for one, outcome in client.gather(jobs)}
    assert isinstance(outcomes["job-0"], JobFailed)
    assert isinstance(outcomes["job-1"], IdempotencyConflict)
    assert isinstance(outcomes["job-2"], InvalidJob)


async def test_a_job_without_an_answer_in_time_is_reported() -> None:
    async with connect(ScriptedTransport()) as client:
        [(one, outcome)] = [each async for each in client.gather([job(0)], timeout=0.01)]
    assert isinstance(outcome, TimedOut)
    assert outcome.job_id == one.id


async def test_a_job_known_by_another_id_is_given_with_that() -> None:
    class Known(ScriptedTransport):
        async def submit(self, jobs: "list[Job]") -> list[str]:  # type: ignore[override]
            await super().submit([job(7)])
            return ["job-7"]

    async with connect(Known(answer)) as client:
        assert [one.id async for one, _ in client.gather([job(0)])] == ["job-7"]


async def test_stopping_early_leaves_no_task() -> None:
    transport = ScriptedTransport(answer)
    before = asyncio.all_tasks()
    async with connect(transport) as client:
        outcomes = client.gather((job(number) for number in range(100)), window=3)
        await anext(outcomes)
        await outcomes.aclose()
        assert len(transport.submitted) <= 4
        assert not any(transport.watchers(one.id) for one in transport.submitted)
        assert asyncio.all_tasks() == before


async def test_errors_of_the_source_and_of_the_queue_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Job]:
        yield job(0)
        raise KeyError("the line is torn")

    class Ending(ScriptedTransport):
        async def result(self, job_id: str) -> bytes | None:
            raise QueueUnavailable("gone for good")

    async with connect(Slow()) as client:
        with pytest.raises(KeyError, match="torn"):
            [each async for each in client.gather(broken())]
    monkeypatch.setattr(job_client, "OUTAGE_SECONDS", 0.0)
    async with connect(Ending()) as client:
        with pytest.raises(QueueUnavailable, match="for good"):
            [each async for each in client.gather([job(0)])]


async def test_an_outage_between_a_job_and_its_result_is_waited_for() -> None:
    class Restarting(ScriptedTransport):
        away = True

        async def result(self, job_id: str) -> bytes | None:
            if self.away:
                self.away = False
                raise QueueUnavailable("it restarts")
            return await super().result(job_id)

    async with connect(Restarting(answer)) as client:
        assert [one.id async for one, _ in client.gather([job(0)])] == ["job-0"]


async def test_gathering_no_jobs_yields_nothing() -> None:
    async with connect(ScriptedTransport()) as client:
        assert [each async for each in client.gather([])] == []
        with pytest.raises(ValueError, match="window"):
            [each async for each in client.gather([], window=0)]


PROGRAM = """
import threading
from stoop import Client
from stoop.config import ProducerConfig
from tests.producer.scripted import ScriptedTransport, answer

client = Client(ProducerConfig(), transport=ScriptedTransport(answer))

def line():
    yield client.prepare("query", question="how many?")
    threading.Event().wait()

for job, result in client.gather(line()):
    print(result.status)
    break
client.close()
"""


def test_a_program_ends_that_left_a_source_which_blocks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "completed\n", "")
