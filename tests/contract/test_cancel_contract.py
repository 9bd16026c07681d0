"""Cancelling a job, on both queues: what waits does not run, what runs is told of, what has ended stays."""

import pytest

from producer.transport import Transport
from schemas.failure import Failure, FailureCode
from tests.contract.queues import QueueUnderTest, ending, new_job
from worker.jobs.broker import Broker
from worker.jobs.outcome import Cancelled, Completed, Released, Retry

LATER = Retry(Failure.of(FailureCode.IMAGE_TIMEOUT, "the store is slow"), 3600.0)


async def test_a_queued_job_is_settled_when_it_is_claimed(transport: Transport, broker: Broker) -> None:
    [job_id] = await transport.submit([new_job()])
    assert await transport.cancel(job_id) == "queued"
    [delivery] = await broker.take(1)
    assert isinstance(delivery.verdict, Cancelled)
    assert await broker.settle([ending(delivery, Cancelled())]) == [True]
    assert await transport.state(job_id) == "cancelled"


async def test_a_delayed_job_comes_due_at_once(transport: Transport, broker: Broker) -> None:
    [job_id] = await transport.submit([new_job()])
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery, LATER)]) == [True]
    assert await broker.take(1) == []
    assert await transport.cancel(job_id) == "delayed"
    [again] = await broker.take(1)
    assert isinstance(again.verdict, Cancelled)


async def test_a_running_job_is_told_of(transport: Transport, broker: Broker) -> None:
    [job_id] = await transport.submit([new_job()])
    [delivery] = await broker.take(1)
    assert await transport.cancel(job_id) == "running"
    assert [cancelled.job_id for cancelled in (await broker.extend()).cancelled] == [job_id]
    assert await broker.settle([ending(delivery, Cancelled())]) == [True]


async def test_a_job_that_is_given_back_stays_cancelled(transport: Transport, broker: Broker) -> None:
    [job_id] = await transport.submit([new_job()])
    [delivery] = await broker.take(1)
    await transport.cancel(job_id)
    await broker.settle([ending(delivery, Released())])
    [again] = await broker.take(1)
    assert isinstance(again.verdict, Cancelled)


async def test_an_answer_that_comes_first_is_kept(transport: Transport, broker: Broker) -> None:
    [job_id] = await transport.submit([new_job()])
    [delivery] = await broker.take(1)
    await transport.cancel(job_id)
    assert await broker.settle([ending(delivery, Completed())]) == [True]
    assert await transport.state(job_id) == "completed"
    assert await transport.cancel(job_id) == "completed"


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelling_may_be_repeated(transport: Transport, broker: Broker, times: int) -> None:
    [job_id] = await transport.submit([new_job()])
    assert [await transport.cancel(job_id) for _ in range(times)] == ["queued"] * times
    assert len(await broker.take(2)) == 1


async def test_a_job_nobody_knows_has_no_state(transport: Transport) -> None:
    assert await transport.cancel("nobody") is None


async def test_a_bare_entry_is_cancelled_before_its_first_claim(on_redis: QueueUnderTest) -> None:
    transport, broker = on_redis.transport(), on_redis.broker()
    await broker.open()
    await on_redis.put("interactive", {"j": '{"v": 1, "id": "raw", "skill": "query", "question": "?"}'})
    assert await transport.cancel("raw") is None
    [delivery] = await broker.take(1)
    assert isinstance(delivery.verdict, Cancelled)
    assert await broker.settle([ending(delivery, Cancelled())]) == [True]
    assert await transport.state("raw") == "cancelled"
