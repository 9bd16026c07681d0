"""Tenants that share a lane, on the queue in memory and on a real Redis."""

import asyncio
import contextlib
from collections import Counter

import pytest

from stoop.client.transport import Transport
from stoop.errors import QueueFull
from stoop_worker.jobs.broker import Broker, Delivery, Isolation
from stoop_worker.jobs.outcome import Crashed, Released, Retry
from tests.contract.queues import FAILURE, QueueUnderTest, die_under, ending, new_job, submit

SOON = 5.0


async def submit_for(transport: Transport, tenant: str, count: int, lane: str = "interactive") -> list[str]:
    return await transport.submit([new_job(tenant=tenant, lane=lane) for _ in range(count)])


def owners(deliveries: list[Delivery], jobs: dict[str, list[str]]) -> Counter[str]:
    of = {job_id: tenant for tenant, ids in jobs.items() for job_id in ids}
    return Counter(of[delivery.job_id] for delivery in deliveries)


async def test_a_flood_of_one_tenant_takes_no_turn_from_another(broker: Broker, transport: Transport) -> None:
    jobs = {"flood": await submit_for(transport, "flood", 200)}
    jobs |= {"small": await submit_for(transport, "small", 4), "nobody": await submit(transport, 4)}
    assert owners(await broker.take(9), jobs) == {"flood": 3, "small": 3, "nobody": 3}
    assert owners(await broker.take(9), jobs) == {"flood": 7, "small": 1, "nobody": 1}


async def test_turns_go_round_with_a_single_permit(broker: Broker, transport: Transport) -> None:
    jobs = {tenant: await submit_for(transport, tenant, 20) for tenant in ("a", "b", "c")}
    taken = [(await broker.take(1))[0] for _ in range(12)]
    assert owners(taken, jobs) == {"a": 4, "b": 4, "c": 4}


async def test_the_jobs_of_one_tenant_keep_their_order(broker: Broker, transport: Transport) -> None:
    ids = await submit_for(transport, "acme", 5)
    first = await broker.take(3)
    assert [one.job_id for one in first + await broker.take(3)] == ids
    assert {one.lane for one in first} == {"interactive/acme"}


async def test_more_tenants_than_permits_all_have_their_turn(broker: Broker, transport: Transport) -> None:
    jobs = {f"t{i}": await submit_for(transport, f"t{i}", 2) for i in range(40)}
    taken: list[Delivery] = []
    for _ in range(10):
        taken += await broker.take(4)
    assert set(owners(taken, jobs).values()) == {1}
    assert len(owners(taken, jobs)) == 40


async def test_a_tenant_s_job_wakes_an_idle_worker_and_ends_as_any_other(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    assert await broker.take(1) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    [job_id] = await submit_for(transport, "acme", 1)
    async with asyncio.timeout(SOON):
        await waiting
    [first] = await broker.take(1)
    await broker.settle([ending(first, Released())])
    [second] = await broker.take(1)
    await broker.settle([ending(second, Retry(FAILURE, 0.0))])
    [third] = await broker.take(1)
    assert (third.job_id, third.attempt, third.lane) == (job_id, 2, "interactive/acme")
    assert await broker.settle([ending(third)]) == [True]
    assert await transport.state(job_id) == "completed"
    assert await queue.depth("interactive") == 0


async def test_a_tenant_s_jobs_are_taken_over(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    ids = await submit_for(transport, "acme", 3)
    await die_under(queue, 3, broker)
    taken = await broker.take(8)
    assert [one.job_id for one in taken] == ids
    assert {one.isolation for one in taken} == {Isolation.NONE}
    await broker.settle([ending(one, Crashed()) for one in taken])
    again = await broker.take(8)
    assert [(one.job_id, one.isolation) for one in again] == [(job_id, Isolation.SMALL) for job_id in ids]


async def test_a_tenant_at_its_limit_leaves_its_turn_to_others(queue: QueueUnderTest, transport: Transport) -> None:
    broker = queue.broker(tenant_limit=2)
    other = queue.broker("worker-2", tenant_limit=2)
    await broker.open()
    await other.open()
    jobs = {tenant: await submit_for(transport, tenant, 5) for tenant in ("a", "b")}
    held = await broker.take(3) + await other.take(8)
    assert owners(held, jobs) == {"a": 2, "b": 2}
    assert await broker.take(8) == []
    mine = next(one for one in held if one.job_id in jobs["a"])
    assert any(await asyncio.gather(broker.settle([ending(mine)]), other.settle([ending(mine)])))
    assert owners(await broker.take(8), jobs) == {"a": 1}


async def test_a_lane_s_bound_counts_all_its_tenants(queue: QueueUnderTest) -> None:
    transport = queue.transport(bounds={"interactive": 5}, tenant_bound=3)
    await submit_for(transport, "a", 3)
    with pytest.raises(QueueFull):
        await submit_for(transport, "a", 1)
    await submit(transport, 1)
    with pytest.raises(QueueFull):
        await submit_for(transport, "b", 2)
    await submit_for(transport, "b", 1)
    with pytest.raises(QueueFull):
        await submit(transport, 1)
    await submit_for(transport, "a", 3, "bulk")
    assert await queue.depth("interactive") == 5


async def test_a_lane_that_was_full_of_many_tenants_takes_jobs_again(queue: QueueUnderTest, broker: Broker) -> None:
    transport = queue.transport(bounds={"interactive": 100})
    for i in range(100):
        await submit_for(transport, f"t{i}", 1)
    with pytest.raises(QueueFull):
        await submit_for(transport, "late", 1)
    await broker.settle([ending(one) for one in await broker.take(30)])
    async with asyncio.timeout(SOON):
        while True:
            with contextlib.suppress(QueueFull):
                await submit_for(transport, "late", 30)
                break
    with pytest.raises(QueueFull):
        await submit_for(transport, "later", 1)
    assert await queue.depth("interactive") == 100
