"""Cancelling, pausing and the worker's checks of its own jobs, on both queues."""

import asyncio
import json
import time

import pytest

from stoop.client.transport import Transport
from stoop_worker.jobs.broker import Broker, Held
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Outcome, Released, Retry
from tests.contract.queues import FAILURE, QueueUnderTest, die_under, ending, new_job, open_broker, submit

SOON = 5.0


async def test_a_queued_job_that_is_cancelled_comes_with_its_verdict(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    assert await transport.cancel(job_id) == "queued"
    [delivery] = await broker.take(1)
    assert delivery.verdict == Cancelled()
    assert await broker.settle([ending(delivery, delivery.verdict)]) == [True]
    assert await transport.state(job_id) == "cancelled"


async def test_a_queued_job_that_is_cancelled_is_settled_before_all_others(
    broker: Broker, transport: Transport
) -> None:
    ids = await submit(transport, 50)
    assert await broker.take(1)
    assert await transport.cancel(ids[40]) == "queued"
    found = await broker.take(1)
    assert [(one.job_id, one.verdict) for one in found] == [(ids[40], Cancelled())]
    assert await broker.settle([ending(found[0], Cancelled())]) == [True]
    left = [one.job_id for _ in range(6) for one in await broker.take(16)]
    assert left == [job_id for job_id in ids[1:] if job_id != ids[40]], "and it comes once"


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_jobs_cancelled_while_waiting_do_not_delay_other_jobs(
    queue: QueueUnderTest, broker: Broker, transport: Transport, tenant: str | None
) -> None:
    ids = await transport.submit([new_job(tenant=tenant) for _ in range(20)])
    for job_id in ids[:19]:
        await transport.cancel(job_id)
    other = await open_broker(queue, "worker-2")
    held = await other.take(19)
    assert {one.verdict for one in held} == {Cancelled()}
    assert [one.job_id for one in await broker.take(1)] == ids[19:]
    assert await other.settle([ending(one, Cancelled()) for one in held]) == [True] * 19


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_jobs_cancelled_while_waiting_take_no_permit_later(
    broker: Broker, transport: Transport, tenant: str | None
) -> None:
    ids = await transport.submit([new_job(tenant=tenant) for _ in range(6)])
    for job_id in ids[:2]:
        await transport.cancel(job_id)
    held = [one for _ in range(2) for one in await broker.take(1)]
    assert {one.job_id for one in held} == set(ids[:2])
    assert [one.job_id for one in await broker.take(2)] == ids[2:4]


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_job_cancelled_in_a_paused_lane_is_settled_at_once(
    queue: QueueUnderTest, broker: Broker, transport: Transport, tenant: str | None
) -> None:
    [kept, gone] = await transport.submit([new_job(tenant=tenant) for _ in range(2)])
    await queue.pause("interactive")
    assert await broker.take(8) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    await transport.cancel(gone)
    async with asyncio.timeout(SOON):
        await waiting
    [delivery] = await broker.take(8)
    assert (delivery.job_id, delivery.verdict) == (gone, Cancelled())
    await broker.settle([ending(delivery, Cancelled())])
    assert [await transport.state(job_id) for job_id in (kept, gone)] == ["queued", "cancelled"]
    await queue.resume("interactive")
    while not (taken := await broker.take(8)):
        pass
    assert [one.job_id for one in taken] == [kept]


async def test_a_cancelled_job_of_a_worker_that_died_settling_it_is_settled_by_another(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [_, gone] = await submit(transport, 2)
    await transport.cancel(gone)
    lost = await die_under(queue, 1, broker)
    assert [one.job_id for one in lost] == [gone]
    taken = [one for _ in range(2) for one in await broker.take(8)]
    assert [one.verdict for one in taken if one.job_id == gone] == [Cancelled()]
    assert len(taken) == 2


async def test_a_worker_learns_of_a_cancel_at_its_next_beat(broker: Broker, transport: Transport) -> None:
    [first, second] = await submit(transport, 2)
    held = await broker.take(2)
    assert await broker.extend() == Held()
    assert await transport.cancel(first) == "running"
    assert await broker.extend() == Held(cancelled=(held[0],))
    await broker.settle([ending(held[0], Cancelled()), ending(held[1])])
    assert await broker.extend() == Held()
    assert [await transport.state(job_id) for job_id in (first, second)] == ["cancelled", "completed"]


async def test_an_answer_before_the_cancel_arrives_counts(broker: Broker, transport: Transport) -> None:
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


async def test_a_job_in_a_paused_lane_does_not_end_a_wait(
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


async def test_a_worker_is_registered_until_it_leaves(queue: QueueUnderTest, broker: Broker) -> None:
    await broker.extend(record=b'{"host":"here"}')
    await broker.extend()
    registry = await queue.registry()
    assert {name: json.loads(record) for name, record in registry.items()} == {"worker-1": {"host": "here"}}
    await broker.close()
    assert await queue.registry() == {}
