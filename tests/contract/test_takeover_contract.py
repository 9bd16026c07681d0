"""The takeover of dead workers' jobs, on the queue in memory and on a real Redis."""

import asyncio

import pytest

from stoop.client.transport import Transport
from stoop_schemas.failure import FailureCode
from stoop_worker.jobs.broker import Broker, EventGroup, Isolation
from stoop_worker.jobs.outcome import Cancelled, Completed, Crashed, Dead, Released, Retry
from tests.contract.queues import FAILURE, QueueUnderTest, crash_under, die_under, ending, new_job, open_broker, submit

SOON = 5.0


async def test_the_jobs_of_a_living_worker_are_left_alone(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 3)
    held = await broker.take(3)
    other = await open_broker(queue, "worker-2")
    assert await other.reclaim() == 0
    assert await broker.reclaim() == 0
    assert await broker.settle([ending(one) for one in held]) == [True] * 3


async def test_a_dead_worker_s_jobs_are_the_next_to_be_claimed(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    ids = await submit(transport, 10)
    lost = await die_under(queue, 6, broker)
    assert [await transport.state(job_id) for job_id in ids] == ["queued"] * 10
    again = await broker.take(64)
    found = [(one.job_id, one.attempt, one.crashes, one.isolation) for one in again]
    assert found[:6] == [(job_id, 2, 1, Isolation.NONE) for job_id in ids[:6]]
    assert found[6:] == [(job_id, 1, 0, Isolation.NONE) for job_id in ids[6:]]
    assert again[0].packed == lost[0].packed
    assert await broker.settle([ending(one) for one in again]) == [True] * 10
    assert await queue.depth("interactive") == 0


async def test_the_jobs_of_an_engine_that_crashed_run_again_in_small_batches(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    ids = await submit(transport, 20)
    lost = await crash_under(broker, 20)
    first = await broker.take(64)
    assert [(one.job_id, one.attempt, one.crashes, one.isolation) for one in first] == [
        (job_id, 2, 1, Isolation.SMALL) for job_id in ids[:16]
    ]
    assert first[0].packed == lost[0].packed
    assert await broker.take(64) == [], "a small batch is full"
    assert await broker.settle([ending(one) for one in first[:4]]) == [True] * 4
    second = await broker.take(64)
    assert [one.job_id for one in second] == ids[16:], "it is filled up as its jobs end"
    assert await broker.settle([ending(one) for one in first[4:] + second]) == [True] * 16
    assert [await transport.state(job_id) for job_id in ids] == ["completed"] * 20
    assert await queue.depth("interactive") == await queue.depth("quarantine:small") == 0


async def test_a_job_is_spared_one_death_of_a_whole_worker(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 1)
    runs = [await die_under(queue, 1, broker, f"doomed-{count}") for count in range(4)]
    runs.append(await broker.take(1))
    found = [(one.crashes, one.isolation) for [one] in runs]
    isolations = [Isolation.NONE, Isolation.NONE, Isolation.SMALL, Isolation.ALONE, Isolation.NONE]
    assert found == list(enumerate(isolations))
    assert [isinstance(one.verdict, Dead) for [one] in runs] == [False] * 4 + [True]


async def test_a_suspect_whose_worker_is_killed_stays_where_it_is(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 1)
    await crash_under(broker, 1)
    await die_under(queue, 1, broker)
    [again] = await broker.take(1)
    assert (again.attempt, again.crashes, again.isolation) == (3, 2, Isolation.SMALL)


async def test_the_dead_worker_s_late_results_are_fenced(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    doomed = await open_broker(queue, "doomed")
    [late] = await doomed.take(1)
    await queue.kill("doomed")
    assert await broker.reclaim() == 1
    held = await doomed.extend()
    assert (held.lost, held.cancelled) == ((late,), ())
    assert await doomed.append([EventGroup(late, 1, (b"late",))]) == [False]
    assert await doomed.settle([ending(late)]) == [False]
    assert (await doomed.extend()).lost == (), "what was settled is held no more"
    [again] = await broker.take(1)
    assert await doomed.settle([ending(late)]) == [False]
    assert await broker.settle([ending(again)]) == [True]
    assert (await transport.log(job_id))[1:] == [b"last of " + job_id.encode()]


async def test_nothing_runs_beside_a_job_that_crashed_in_a_small_batch(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    ids = await submit(transport, 5)
    await crash_under(broker, 5)
    await crash_under(broker, 5)
    fresh = await submit(transport, 3)
    for job_id in ids[:4]:
        [alone] = await broker.take(64)
        assert (alone.job_id, alone.attempt, alone.crashes, alone.isolation) == (job_id, 3, 2, Isolation.ALONE)
        assert await broker.take(64) == []
        await broker.settle([ending(alone)])
    between = await broker.take(64)
    assert [one.job_id for one in between] == fresh, "the lanes have a turn after every fourth"
    await broker.settle([ending(one) for one in between])
    assert [(one.job_id, one.isolation) for one in await broker.take(64)] == [(ids[4], Isolation.ALONE)]


async def test_a_job_that_crashes_alone_is_a_dead_letter_and_the_others_complete(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    ids = await submit(transport, 40)
    poison, runs, crashes = ids[7], 0, 0
    while deliveries := await broker.take(64):
        for verdict in [one for one in deliveries if one.verdict]:
            assert isinstance(verdict.verdict, Dead)
            assert (verdict.job_id, verdict.crashes) == (poison, 3)
            assert verdict.verdict.failure.code is FailureCode.WORKER_LOST
            assert "3 times" in verdict.verdict.failure.message
        runs += sum(one.verdict is None for one in deliveries)
        killed = any(one.job_id == poison and one.verdict is None for one in deliveries)
        crashes += killed
        outcomes = [one.verdict or (Crashed() if killed else Completed()) for one in deliveries]
        ends = [ending(one, outcome) for one, outcome in zip(deliveries, outcomes, strict=True)]
        assert await broker.settle(ends) == [True] * len(ends)
    assert crashes == 3
    assert runs == 40 + 40 + 16, "each once, all again in small batches, one small batch again alone"
    states = {job_id: await transport.state(job_id) for job_id in ids}
    assert states.pop(poison) == "failed"
    assert set(states.values()) == {"completed"}
    assert await queue.dead() == [(poison, "worker_lost")]


async def test_a_dead_letter_has_all_an_operator_needs(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await transport.submit([new_job(lane="bulk", tenant="acme")])
    for _ in range(3):
        [delivery] = await broker.take(1)
        await broker.settle([ending(delivery, Crashed())])
    [condemned] = await broker.take(1)
    assert condemned.isolation is Isolation.NONE
    await broker.settle([ending(condemned, condemned.verdict)])
    [letter] = await queue.letters()
    known = {name: letter[name] for name in ("id", "lane", "attempt", "crashes", "j")}
    packed = condemned.packed.decode()
    assert known == {"id": job_id, "lane": "bulk", "attempt": "4", "crashes": "3", "j": packed}


async def test_an_engine_s_crash_is_taken_over_at_once(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    [first] = await broker.take(1)
    assert await broker.settle([ending(first, Crashed())]) == [True]
    assert (await transport.state(job_id), await transport.result(job_id)) == ("queued", None)
    [second] = await broker.take(1)
    assert (second.attempt, second.crashes, second.isolation) == (2, 1, Isolation.SMALL)
    assert await broker.settle([ending(first, Crashed())]) == [False]


async def test_a_busy_worker_finishes_its_jobs_before_it_takes_quarantined_ones(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 2)
    held = await broker.take(2)
    lost = await submit(transport, 1)
    await crash_under(await open_broker(queue, "worker-2"), 1)
    await submit(transport, 5)
    assert await broker.take(8) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    await submit(transport, 1)
    await broker.settle([ending(held[0])])
    async with asyncio.timeout(SOON):
        await waiting
    assert await broker.take(8) == [], "one is still held"
    await broker.settle([ending(held[1])])
    assert [one.job_id for one in await broker.take(8)] == lost


async def test_no_more_workers_turn_to_the_quarantine_than_it_takes(
    queue: QueueUnderTest, transport: Transport
) -> None:
    workers = [await open_broker(queue, f"worker-{number}") for number in range(4)]
    for worker in workers:
        await worker.extend(record=b"{}")
    apart = await submit(transport, 5)
    await crash_under(workers[0], 5)
    fresh = await submit(transport, 2)
    assert [one.job_id for one in await workers[1].take(4)] == apart[:4]
    assert [one.job_id for one in await workers[2].take(4)] == fresh, "one worker can run five at once"
    await queue.kill("worker-1")
    assert [one.job_id for one in await workers[3].take(4)] == apart[4:], "the dead have no turn"


async def test_half_of_the_workers_go_on_with_the_lanes(queue: QueueUnderTest, transport: Transport) -> None:
    workers = [await open_broker(queue, f"worker-{number}") for number in range(4)]
    for worker in workers:
        await worker.extend(record=b"{}")
    await submit(transport, 100)
    await crash_under(workers[0], 100)
    fresh = await submit(transport, 4)
    bursts = [await worker.take(16) for worker in workers]
    assert [{one.isolation for one in burst} for burst in bursts[:2]] == [{Isolation.SMALL}] * 2
    assert [one.job_id for one in bursts[2]] == fresh
    assert bursts[3] == []


async def test_the_quarantine_delays_fresh_jobs_but_never_stops_them(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 200)
    await crash_under(broker, 200)
    [fresh] = await submit(transport, 1)
    before = 0
    while (taken := await broker.take(64))[0].job_id != fresh:
        before += len(taken)
        await broker.settle([ending(one) for one in taken])
    assert 0 < before <= 64


async def test_a_released_job_does_not_count_as_in_flight(queue: QueueUnderTest, transport: Transport) -> None:
    broker = queue.broker(tenant_limit=2)
    await broker.open()
    ids = await transport.submit([new_job(tenant="acme") for _ in range(3)])
    doomed = queue.broker("doomed", tenant_limit=2)
    await doomed.open()
    assert len(await doomed.take(8)) == 2
    assert await broker.take(8) == []
    await queue.kill("doomed")
    await broker.reclaim()
    assert [one.job_id for one in await broker.take(8)] == ids[:2]
    assert await broker.take(8) == []


@pytest.mark.parametrize("times", [0, 1])
async def test_an_idle_worker_wakes_for_the_jobs_of_a_dead_one(
    queue: QueueUnderTest, broker: Broker, transport: Transport, times: int
) -> None:
    await submit(transport, 1)
    doomed = await open_broker(queue, "doomed")
    for _ in range(times):
        await crash_under(doomed, 1)
    await doomed.take(1)
    assert await broker.take(1) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    await queue.kill("doomed")
    await (await open_broker(queue, "worker-2")).reclaim()
    async with asyncio.timeout(SOON):
        await waiting
    assert len(await broker.take(1)) == 1


async def test_a_quarantined_job_that_is_put_back_stays_quarantined(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await submit(transport, 1)
    await crash_under(broker, 1)
    [first] = await broker.take(1)
    await broker.settle([ending(first, Released())])
    [second] = await broker.take(1)
    assert (second.attempt, second.crashes, second.isolation) == (2, 1, Isolation.SMALL)
    await broker.settle([ending(second, Retry(FAILURE, 0.0))])
    [third] = await broker.take(1)
    assert (third.attempt, third.crashes, third.isolation) == (3, 1, Isolation.SMALL)
    assert await broker.settle([ending(third)]) == [True]


async def test_the_same_entry_is_taken_over_once(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    ids = await submit(transport, 250)
    await die_under(queue, 250, broker)
    assert await broker.reclaim() == 0
    assert [await queue.read(job_id, "crashes") for job_id in ids] == ["1"] * 250


async def test_a_malformed_entry_is_taken_over_too(queue: QueueUnderTest, broker: Broker) -> None:
    entry = await queue.put("interactive", {"j": "no JSON"})
    await die_under(queue, 1, broker)
    [delivery] = await broker.take(1)
    assert (delivery.job_id, delivery.packed, delivery.crashes) == (entry, b"no JSON", 1)


async def test_a_cancelled_job_of_a_dead_worker_comes_with_its_verdict(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    await queue.change(job_id, cancel="1")
    await die_under(queue, 1, broker)
    [delivery] = await broker.take(1)
    assert (delivery.verdict, delivery.isolation) == (Cancelled(), Isolation.NONE)
