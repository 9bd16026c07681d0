"""Cancelling, pausing and the worker's own look at what it holds, on both queues."""

import asyncio
import json
import time

import pytest

from producer.transport import Transport
from tests.contract.queues import FAILURE, QueueUnderTest, ending, new_job, submit
from worker.jobs.broker import Broker, Held
from worker.jobs.outcome import Cancelled, Completed, Crashed, Outcome, Released, Retry

SOON = 5.0


async def test_a_queued_job_that_is_cancelled_comes_with_its_verdict(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    assert await transport.cancel(job_id) == "queued"
    [delivery] = await broker.take(1)
    assert delivery.verdict == Cancelled()
    assert await broker.settle([ending(delivery, delivery.verdict)]) == [True]
    assert await transport.state(job_id) == "cancelled"


async def test_a_worker_hears_at_its_next_beat_that_a_job_was_cancelled(broker: Broker, transport: Transport) -> None:
    [first, second] = await submit(transport, 2)
    held = await broker.take(2)
    assert await broker.extend() == Held()
    assert await transport.cancel(first) == "running"
    assert await broker.extend() == Held(cancelled=(held[0],))
    await broker.settle([ending(held[0], Cancelled()), ending(held[1])])
    assert await broker.extend() == Held()
    assert [await transport.state(job_id) for job_id in (first, second)] == ["cancelled", "completed"]


async def test_an_answer_that_came_before_the_cancel_was_heard_counts(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    await transport.cancel(job_id)
    assert await broker.settle([ending(delivery, Completed())]) == [True]
    assert await transport.state(job_id) == "completed"
    assert await transport.cancel(job_id) == "completed", "what has ended cannot be cancelled"
    assert await transport.state(job_id) == "completed"


@pytest.mark.parametrize("outcome", [Released(), Retry(FAILURE, 60.0), Crashed()])
async def test_a_cancelled_job_that_is_put_back_does_not_run(
    broker: Broker, transport: Transport, outcome: Outcome
) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    await transport.cancel(job_id)
    assert await broker.settle([ending(delivery, outcome)]) == [True]
    [again] = await broker.take(1)
    assert (again.job_id, again.verdict) == (job_id, Cancelled())


async def test_a_delayed_job_that_is_cancelled_comes_at_once(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    await broker.settle([ending(delivery, Retry(FAILURE, 60.0))])
    assert await transport.cancel(job_id) == "delayed"
    [again] = await broker.take(1)
    assert again.verdict == Cancelled()


async def test_a_paused_lane_keeps_its_jobs(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    await queue.pause("interactive")
    [kept] = await submit(transport, 1)
    [tenants] = await transport.submit([new_job(tenant="acme")])
    [other] = await submit(transport, 1, "bulk")
    assert [one.job_id for one in await broker.take(8)] == [other]
    async with asyncio.timeout(SOON):
        await broker.wait(0.01)
    assert await broker.take(8) == []
    await queue.resume("interactive")
    assert {one.job_id for one in await broker.take(8)} == {kept, tenants}


async def test_a_wait_is_not_ended_by_what_a_paused_lane_holds(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 1)
    await queue.pause("interactive")
    assert await broker.take(1) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    await broker.extend()
    assert not waiting.done()
    await submit(transport, 1, "bulk")
    async with asyncio.timeout(SOON):
        await waiting


async def test_time_is_the_queue_s(broker: Broker, transport: Transport) -> None:
    await submit(transport, 1)
    [delivery] = await broker.take(1)
    assert 0 <= broker.now() - delivery.claimed_at < 60_000
    await broker.extend()
    assert abs(broker.now() - 1000 * time.time()) < 60_000


async def test_a_worker_tells_of_itself_until_it_leaves(queue: QueueUnderTest, broker: Broker) -> None:
    await broker.extend(told=b'{"host":"here"}')
    await broker.extend()
    assert {name: json.loads(told) for name, told in (await queue.registry()).items()} == {"worker-1": {"host": "here"}}
    await broker.close()
    assert await queue.registry() == {}
