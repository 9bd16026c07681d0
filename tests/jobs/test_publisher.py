import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from stoop_schemas.codec import unpack_event, unpack_result
from stoop_schemas.event import DeltaEvent, FailedEvent, FinishedEvent, RestartedEvent, StartedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.publisher import Identity, Publisher
from tests.support.recording_broker import RecordingBroker, delivery

DONE = Result(id="a", status=State.COMPLETED, skill=Skill.CAPTION, output=Output(caption="x"))


@pytest.fixture
async def broker() -> RecordingBroker:
    return RecordingBroker()


@pytest.fixture
async def publisher(broker: RecordingBroker) -> AsyncIterator[Publisher]:
    publisher = Publisher(broker, Identity(worker="w1", model="m1"), interval=0)
    running = asyncio.create_task(publisher.run())
    yield publisher
    running.cancel()


def add_texts(publisher: Publisher, job: Delivery, *texts: str) -> None:
    for text in texts:
        publisher.add_event(
            job, lambda seq, text=text: DeltaEvent(id=job.job_id, seq=seq, attempt=job.attempt, text=text)
        )


async def test_events_are_numbered_from_where_the_job_stood_and_end_with_its_ending(
    broker: RecordingBroker, publisher: Publisher
) -> None:
    job = delivery("a", next_seq=1)
    publisher.begin(job)
    add_texts(publisher, job, "one ", "two")
    assert await publisher.settle(job, outcomes.Completed(), DONE)
    published = [unpack_event(packed) for packed in broker.events("a")]
    assert [event.seq for event in published] == [1, 2, 3]
    assert isinstance(published[0], StartedEvent)
    assert published[1] == DeltaEvent(id="a", seq=2, attempt=1, text="one two")
    assert isinstance(published[2], FinishedEvent)


async def test_a_result_names_its_worker_model_and_attempt(broker: RecordingBroker, publisher: Publisher) -> None:
    job = delivery("a", attempt=3)
    publisher.begin(job)
    await publisher.settle(job, outcomes.Completed(), DONE)
    result = unpack_result(broker.settlements[0].result)
    assert (result.worker, result.model, result.attempt) == ("w1", "m1", 3)


async def test_a_later_attempt_publishes_restarted(broker: RecordingBroker, publisher: Publisher) -> None:
    job = delivery("a", attempt=2)
    publisher.begin(job)
    await publisher.settle(job, outcomes.Completed(), DONE)
    assert isinstance(unpack_event(broker.events("a")[0]), RestartedEvent)


async def test_a_released_run_with_events_publishes_restarted_with_the_same_attempt(
    broker: RecordingBroker, publisher: Publisher
) -> None:
    job = delivery("a", attempt=1, next_seq=2)
    publisher.begin(job)
    await publisher.settle(job, outcomes.Completed(), DONE)
    assert isinstance(unpack_event(broker.events("a")[0]), RestartedEvent)


async def test_jobs_do_not_mix(broker: RecordingBroker, publisher: Publisher) -> None:
    jobs = [delivery(name) for name in "ab"]
    for job in jobs:
        publisher.begin(job)
    for text in "123":
        for job in jobs:
            add_texts(publisher, job, job.job_id + text)
    failure = Failure.of(FailureCode.IMAGE_NOT_FOUND, "gone")
    ends = [
        (jobs[0], outcomes.Completed(), DONE),
        (jobs[1], outcomes.Failed(failure), Result(id="b", status=State.FAILED, failure=failure)),
    ]
    await asyncio.gather(*(publisher.settle(*end) for end in ends))
    for job in jobs:
        text = "".join(
            event.text for packed in broker.events(job.job_id) if isinstance(event := unpack_event(packed), DeltaEvent)
        )
        assert text == "".join(job.job_id + digit for digit in "123")
    last = unpack_event(broker.events("b")[-1])
    assert isinstance(last, FailedEvent)
    assert last.failure == failure


async def test_a_lost_job_is_reported_as_not_ours(broker: RecordingBroker, publisher: Publisher) -> None:
    job = delivery("a")
    broker.disown("a")
    publisher.begin(job)
    assert not await publisher.settle(job, outcomes.Completed(), DONE)
    assert broker.settlements == []


@pytest.mark.parametrize("call", ["append", "settle"])
async def test_nothing_is_dropped_while_redis_is_away(
    broker: RecordingBroker, publisher: Publisher, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Awaitable[list[bool]]] = getattr(broker, call)
    refusals = iter([QueueUnavailable("away"), QueueUnavailable("away")])

    async def refuse_twice(*arguments: object) -> list[bool]:
        for refusal in refusals:
            raise refusal
        return await real(*arguments)

    monkeypatch.setattr(broker, call, refuse_twice)
    job = delivery("a")
    publisher.begin(job)
    assert await publisher.settle(job, outcomes.Completed(), DONE)
    assert [unpack_event(packed).seq for packed in broker.events("a")] == [0, 1]


async def test_two_deliveries_of_one_job_each_have_their_own_end(broker: RecordingBroker, publisher: Publisher) -> None:
    first, second = delivery("a"), delivery("a", attempt=2, next_seq=5)
    publisher.begin(first)
    publisher.begin(second)
    assert await publisher.settle(first, outcomes.Released())
    add_texts(publisher, second, "on")
    assert await publisher.settle(second, outcomes.Completed(), DONE)
    assert [one.delivery.attempt for one in broker.settlements] == [1, 2]
    assert broker.settlements[1].seq == 7


async def test_an_ending_does_not_wait_for_events_to_gather(broker: RecordingBroker) -> None:
    publisher = Publisher(broker, Identity(worker="w1", model="m1"), interval=60)
    running = asyncio.create_task(publisher.run())
    job = delivery("a")
    publisher.begin(job)
    while not broker.events("a"):  # the first flush, after which events gather
        await asyncio.sleep(0)
    add_texts(publisher, job, "one ")
    await asyncio.sleep(0.01)
    assert len(broker.events("a")) == 1
    assert await asyncio.wait_for(publisher.settle(job, outcomes.Completed(), DONE), 10)
    assert len(broker.events("a")) == 3
    running.cancel()


async def test_an_ending_job_does_not_flush_the_events_of_others(broker: RecordingBroker) -> None:
    publisher = Publisher(broker, Identity(worker="w1", model="m1"), interval=60)
    running = asyncio.create_task(publisher.run())
    ends, goes_on = delivery("a"), delivery("b")
    publisher.begin(ends)
    publisher.begin(goes_on)
    while not broker.events("b"):  # the first flush, after which events gather
        await asyncio.sleep(0)
    add_texts(publisher, goes_on, "one ")
    assert await asyncio.wait_for(publisher.settle(ends, outcomes.Completed(), DONE), 10)
    assert len(broker.events("b")) == 1
    running.cancel()


async def test_events_do_not_wait_because_a_job_has_just_ended(broker: RecordingBroker) -> None:
    publisher = Publisher(broker, Identity(worker="w1", model="m1"), interval=60)
    running = asyncio.create_task(publisher.run())
    cancelled, begins = delivery("a", verdict=outcomes.Cancelled()), delivery("b")
    publisher.begin(cancelled)
    ended = Result(id="a", status=State.CANCELLED, skill=Skill.CAPTION)
    assert await asyncio.wait_for(publisher.settle(cancelled, outcomes.Cancelled(), ended), 10)
    publisher.begin(begins)
    async with asyncio.timeout(10):
        while not broker.events("b"):
            await asyncio.sleep(0)
    running.cancel()


async def test_events_that_came_too_soon_are_written_when_the_interval_is_over(broker: RecordingBroker) -> None:
    publisher = Publisher(broker, Identity(worker="w1", model="m1"), interval=0.05)
    running = asyncio.create_task(publisher.run())
    job = delivery("a")
    publisher.begin(job)
    while not broker.events("a"):
        await asyncio.sleep(0)
    add_texts(publisher, job, "one ", "two")
    async with asyncio.timeout(10):
        while len(broker.events("a")) < 2:
            await asyncio.sleep(0)
    last = unpack_event(broker.events("a")[-1])
    assert isinstance(last, DeltaEvent)
    assert last.text == "one two"
    running.cancel()
