"""The contract of every broker, on the queue in memory and on a real Redis."""

import asyncio
import json
import time

import pytest

from stoop.client.transport import Transport
from stoop_schemas import names
from stoop_schemas.failure import Failure, FailureCode
from stoop_worker.errors import ConfigError
from stoop_worker.jobs.broker import Broker, EventGroup, Held
from stoop_worker.jobs.outcome import Cancelled, Completed, Dead, Expired, Failed, Outcome, Released, Retry
from tests.contract.queues import FAILURE, QueueUnderTest, ending, new_job, submit

SOON = 5.0


def raw(job_id: str = "raw-1", **fields: object) -> dict[str, str]:
    return {"j": json.dumps({"id": job_id, "skill": "query", "question": "What?", **fields})}


async def test_jobs_of_a_lane_come_in_the_order_they_were_submitted(broker: Broker, transport: Transport) -> None:
    ids = await submit(transport, 5)
    assert [delivery.job_id for delivery in await broker.take(5)] == ids


@pytest.mark.parametrize("permits", [1, 3, 4, 9])
async def test_a_burst_is_never_larger_than_the_permits(broker: Broker, transport: Transport, permits: int) -> None:
    await submit(transport, 10)
    await submit(transport, 10, "bulk")
    assert len(await broker.take(permits)) == permits


async def test_no_permits_claim_nothing(broker: Broker, transport: Transport) -> None:
    await submit(transport, 1)
    assert await broker.take(0) == []


async def test_a_delivery_is_not_taken_twice(broker: Broker, transport: Transport) -> None:
    ids = await submit(transport, 3)
    first, second = await broker.take(2), await broker.take(2)
    assert [delivery.job_id for delivery in first + second] == ids
    assert await broker.take(2) == []


async def test_interactive_comes_first_and_bulk_has_a_quarter(broker: Broker, transport: Transport) -> None:
    await submit(transport, 10, "bulk")
    await submit(transport, 10)
    assert [delivery.lane for delivery in await broker.take(8)] == ["interactive"] * 6 + ["bulk"] * 2


async def test_permits_that_one_lane_leaves_go_to_the_other(broker: Broker, transport: Transport) -> None:
    await submit(transport, 2)
    await submit(transport, 10, "bulk")
    assert [delivery.lane for delivery in await broker.take(8)] == ["interactive"] * 2 + ["bulk"] * 6
    await submit(transport, 10)
    assert [delivery.lane for delivery in await broker.take(8)].count("interactive") == 6


async def test_a_single_permit_goes_to_bulk_every_fourth_time(broker: Broker, transport: Transport) -> None:
    await submit(transport, 8)
    await submit(transport, 8, "bulk")
    lanes = [(await broker.take(1))[0].lane for _ in range(8)]
    assert lanes == ["interactive", "interactive", "interactive", "bulk"] * 2


async def test_reserved_permits_are_for_the_first_lane_alone(broker: Broker, transport: Transport) -> None:
    await submit(transport, 8, "bulk")
    assert len(await broker.take(8, reserved=3)) == 5
    assert await broker.take(3, reserved=3) == []
    await submit(transport, 8)
    assert [delivery.lane for delivery in await broker.take(4, reserved=3)] == ["interactive"] * 3 + ["bulk"]
    assert [delivery.lane for delivery in await broker.take(3, reserved=3)] == ["interactive"] * 3


async def test_a_wait_with_reserved_permits_is_for_the_first_lane_alone(broker: Broker, transport: Transport) -> None:
    await submit(transport, 2, "bulk")
    await broker.take(2, reserved=1)
    waiting = asyncio.create_task(broker.wait(60))
    await submit(transport, 2, "bulk")
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done, "nothing of that lane may be claimed now"
    await submit(transport, 1)
    async with asyncio.timeout(10):
        await waiting
    assert [delivery.lane for delivery in await broker.take(1, reserved=1)] == ["interactive"]


async def test_the_priority_of_a_delivery_is_the_place_of_its_lane(queue: QueueUnderTest) -> None:
    for lane in ("urgent", "slow"):
        await queue.put(lane, raw(f"in-{lane}"))
    broker = queue.broker(lanes=("urgent", "slow"))
    await broker.open()
    assert [delivery.priority for delivery in await broker.take(9)] == [0, 1]


async def test_lanes_are_claimed_in_the_order_they_are_named_in(queue: QueueUnderTest) -> None:
    for lane in ("slow", "urgent", "unknown"):
        await queue.put(lane, raw(f"in-{lane}"))
    broker = queue.broker(lanes=("urgent", "slow"))
    await broker.open()
    assert [delivery.job_id for delivery in await broker.take(9)] == ["in-urgent", "in-slow"]


@pytest.mark.parametrize("lanes", [("two words",), ("{other}",), ("",), ()])
def test_a_lane_with_an_odd_name_is_refused(queue: QueueUnderTest, lanes: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        queue.broker(lanes=lanes)


async def test_a_delivery_has_the_times_of_its_submission_and_claim(broker: Broker, transport: Transport) -> None:
    ids = await transport.submit([new_job(id="mine")])
    [delivery] = await broker.take(1)
    assert (delivery.job_id, delivery.attempt, delivery.next_seq, delivery.verdict) == ("mine", 1, 1, None)
    assert ids == ["mine"]
    assert 0 <= delivery.claimed_at - delivery.queued_at < 60_000
    assert abs(delivery.claimed_at - 1000 * time.time()) < 60_000


async def test_one_raw_entry_is_a_job(queue: QueueUnderTest, broker: Broker) -> None:
    await queue.put("interactive", raw())
    [delivery] = await broker.take(1)
    assert (delivery.job_id, delivery.attempt, delivery.next_seq) == ("raw-1", 1, 0)
    assert json.loads(delivery.packed)["question"] == "What?"
    assert await queue.read("raw-1", "state") == "running"


async def test_jobs_put_before_the_first_worker_came_are_there(queue: QueueUnderTest) -> None:
    await queue.put("interactive", raw())
    broker = queue.broker()
    await broker.open()
    assert len(await broker.take(1)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"j": "no JSON"},
        {"j": "[1, 2]"},
        {"j": "7"},
        {"j": '{"skill": "query"}'},
        {"j": '{"id": 7}'},
        {"j": '{"id": null}'},
        {"j": '{"id": ""}'},
        {"j": '{"id": "two words"}'},
        {"j": json.dumps({"id": "x" * 129})},
        {"j": json.dumps({"id": "0" * 32 + "-7"})},
        {"j": "[" * 2000},
        {"j": ""},
    ],
)
async def test_an_entry_without_a_usable_id_goes_by_its_own(
    queue: QueueUnderTest, broker: Broker, fields: dict[str, str]
) -> None:
    entry = await queue.put("interactive", fields)
    [delivery] = await broker.take(1)
    assert (delivery.job_id, delivery.entry_id, delivery.packed) == (entry, entry, fields["j"].encode())
    failure = Failure.of(FailureCode.MALFORMED, "no job")
    assert await broker.settle([ending(delivery, Dead(failure))]) == [True]
    assert await queue.dead() == [(entry, "malformed")]


async def test_an_entry_without_a_job_is_delivered_empty(queue: QueueUnderTest, broker: Broker) -> None:
    entry = await queue.put("interactive", {"x": "1"})
    [delivery] = await broker.take(1)
    assert (delivery.job_id, delivery.packed) == (entry, b"")


@pytest.mark.parametrize("settled", [False, True])
async def test_a_duplicate_of_a_raw_id_is_dropped(queue: QueueUnderTest, broker: Broker, settled: bool) -> None:
    await queue.put("interactive", raw())
    [first] = await broker.take(1)
    if settled:
        await broker.settle([ending(first)])
    await queue.put("interactive", raw())
    await queue.put("bulk", raw())
    await queue.put("interactive", raw("raw-2"))
    assert [delivery.job_id for delivery in await broker.take(1)] == ["raw-2"], "a duplicate costs no permit"
    assert await broker.take(4) == []
    assert await queue.depth("bulk") == 0
    assert await queue.depth("interactive") == (1 if settled else 2)


async def test_a_cancelled_job_comes_with_its_verdict(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    await queue.change(job_id, cancel="1")
    [delivery] = await broker.take(1)
    assert delivery.verdict == Cancelled()
    assert await broker.settle([ending(delivery, delivery.verdict)]) == [True]
    assert await transport.state(job_id) == "cancelled"


@pytest.mark.parametrize(("minutes", "verdict"), [(-1, Expired()), (1, None)])
async def test_a_job_after_its_deadline_comes_with_its_verdict(
    broker: Broker, transport: Transport, minutes: int, verdict: Expired | None
) -> None:
    await transport.submit([new_job(deadline=round(1000 * (time.time() + 60 * minutes)))])
    [delivery] = await broker.take(1)
    assert delivery.verdict == verdict


async def test_events_are_logged_and_published_in_order(broker: Broker, transport: Transport) -> None:
    job = new_job()
    async with transport.subscribe(job.id) as published:
        await transport.submit([job])
        [delivery] = await broker.take(1)
        assert await broker.append([EventGroup(delivery, 1, (b"one", b"two"))]) == [True]
        assert await broker.append([EventGroup(delivery, 3, (b"three",))]) == [True]
        assert await broker.settle([ending(delivery, seq=4)]) == [True]
        heard = [await anext(published) for _ in range(5)]
    assert heard[1:] == [b"one", b"two", b"three", b"last of " + job.id.encode()]
    assert await transport.log(job.id) == heard
    assert await transport.log(job.id, after=2) == heard[3:]


async def test_a_job_that_does_not_stream_has_no_log(broker: Broker, transport: Transport) -> None:
    job = new_job(stream=False)
    async with transport.subscribe(job.id) as published:
        await transport.submit([job])
        [delivery] = await broker.take(1)
        assert await broker.append([EventGroup(delivery, 1, (b"started",))]) == [True]
        assert await transport.log(job.id) == []
        assert await broker.settle([ending(delivery, seq=2)]) == [True]
        heard = [await anext(published) for _ in range(3)]
    assert heard[1:] == [b"started", b"last of " + job.id.encode()]
    assert await transport.log(job.id) == []
    assert (await transport.result(job.id), await transport.next_seq(job.id)) == (b"result", 3)


async def test_a_repeated_append_to_a_job_without_a_log_publishes_each_event_once(
    broker: Broker, transport: Transport
) -> None:
    job = new_job(stream=False)
    await transport.submit([job])
    [delivery] = await broker.take(1)
    async with transport.subscribe(job.id) as published:
        for events in ((b"one",), (b"one", b"two")):
            assert await broker.append([EventGroup(delivery, 1, events)]) == [True]
        assert [await anext(published) for _ in range(2)] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("packed", "logged"),
    [('{"id": "raw"}', True), ('{"id": "raw", "stream": true}', True), ('{"id": "raw", "stream": false}', False)],
)
async def test_a_job_of_a_bare_xadd_has_a_log_unless_it_declines_one(
    queue: QueueUnderTest, broker: Broker, transport: Transport, packed: str, logged: bool
) -> None:
    await queue.put("interactive", {"j": packed})
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery)]) == [True]
    assert await transport.log("raw") == [b"last of raw"] * logged
    assert await transport.result("raw") == b"result"


async def test_a_job_that_cannot_be_read_has_a_log(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    job_id = await queue.put("interactive", {"j": "no JSON"})
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery, Dead(FAILURE))]) == [True]
    assert await transport.log(job_id) == [b"last of " + job_id.encode()]


@pytest.mark.parametrize("model", [None, "small"])
@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_lane_may_have_its_own_result_ttl(
    queue: QueueUnderTest, transport: Transport, model: str | None, tenant: str | None
) -> None:
    broker = queue.broker(lanes=("interactive", "brief"), models=(model,))
    await broker.open()
    jobs = [new_job(lane=lane, model=model, tenant=tenant) for lane in ("interactive", "brief")]
    await transport.submit(jobs)
    assert await broker.settle([ending(one) for one in await broker.take(2)]) == [True, True]
    times = [await queue.result_ttl(job.id) for job in jobs]
    assert 90.0 < times[0] <= 100.0
    assert 5.0 < times[1] <= 10.0


async def test_a_repeated_append_logs_each_event_once(broker: Broker, transport: Transport) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    for events in ((b"one", b"two"), (b"one", b"two"), (b"one", b"two", b"three")):
        assert await broker.append([EventGroup(delivery, 1, events)]) == [True]
    assert (await transport.log(job_id))[1:] == [b"one", b"two", b"three"]


async def test_one_call_serves_many_deliveries(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    ids = await submit(transport, 3)
    first, second, third = await broker.take(3)
    await queue.change(second.job_id, worker="other", attempt="2")
    assert await broker.append([EventGroup(one, 1, (b"e",)) for one in (first, second, third)]) == [True, False, True]
    assert await broker.settle([ending(one, seq=2) for one in (first, second, third)]) == [True, False, True]
    assert [await transport.result(job_id) for job_id in ids] == [b"result", None, b"result"]


@pytest.mark.parametrize("taken", [{"worker": "other"}, {"attempt": "2"}, {"entry": "9-9"}, {"state": "queued"}])
async def test_a_worker_that_lost_a_job_can_neither_publish_nor_settle(
    queue: QueueUnderTest, broker: Broker, transport: Transport, taken: dict[str, str]
) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    await queue.change(job_id, **taken)
    before = await transport.log(job_id)
    assert await broker.append([EventGroup(delivery, 1, (b"late",))]) == [False]
    assert await broker.settle([ending(delivery)]) == [False]
    assert await transport.log(job_id) == before
    assert await transport.result(job_id) is None
    assert await queue.depth("interactive") == 1


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Completed(), "completed"),
        (Failed(FAILURE), "failed"),
        (Dead(FAILURE), "failed"),
        (Cancelled(), "cancelled"),
        (Expired(), "expired"),
    ],
)
async def test_settling_stores_publishes_and_acknowledges_once(
    queue: QueueUnderTest, broker: Broker, transport: Transport, outcome: Outcome, state: str
) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    assert await broker.settle([ending(delivery, outcome)]) == [True]
    logged = await transport.log(job_id)
    assert await transport.result(job_id) == b"result"
    assert await transport.state(job_id) == state
    assert 90.0 < await queue.result_ttl(job_id) <= 100.0
    assert int(await queue.read(job_id, "finished_at") or 0) >= delivery.claimed_at
    assert await queue.depth("interactive") == 0
    assert len(await queue.dead()) == isinstance(outcome, Dead)
    assert await broker.settle([ending(delivery, outcome, seq=2)]) == [False]
    assert await broker.append([EventGroup(delivery, 2, (b"late",))]) == [False]
    assert await transport.log(job_id) == logged


async def test_a_released_job_runs_elsewhere_as_the_same_attempt(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    [first] = await broker.take(1)
    await broker.append([EventGroup(first, 1, (b"started",))])
    assert await broker.settle([ending(first, Released(), seq=2)]) == [True]
    assert (await transport.state(job_id), await transport.result(job_id)) == ("queued", None)
    other = queue.broker("worker-2")
    await other.open()
    [second] = await other.take(1)
    assert (second.job_id, second.attempt, second.next_seq, second.packed) == (job_id, 1, 2, first.packed)
    assert await broker.settle([ending(first, Released())]) == [False]
    assert await other.settle([ending(second)]) == [True]
    assert len(await transport.log(job_id)) == 3
    assert await queue.depth("interactive") == 0


async def test_a_released_entry_without_an_id_keeps_its_first_one(queue: QueueUnderTest, broker: Broker) -> None:
    entry = await queue.put("interactive", {"j": "no JSON"})
    [first] = await broker.take(1)
    await broker.settle([ending(first, Released())])
    [second] = await broker.take(1)
    assert (second.job_id, second.packed) == (entry, b"no JSON")
    assert second.entry_id != entry


async def test_a_retried_job_comes_back_after_its_delay(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    [first] = await broker.take(1)
    await broker.append([EventGroup(first, 1, (b"started",))])
    assert await broker.settle([ending(first, Retry(FAILURE, delay=0.05), seq=2)]) == [True]
    assert (await transport.state(job_id), await transport.result(job_id)) == ("delayed", None)
    assert await broker.take(1) == []
    await broker.wait(SOON)
    [second] = await broker.take(1)
    assert (second.job_id, second.attempt, second.next_seq, second.packed) == (job_id, 2, 2, first.packed)
    assert await broker.settle([ending(first)]) == [False]
    assert await broker.settle([ending(second)]) == [True]
    assert await queue.depth("interactive") == 0


async def test_a_wait_ends_when_a_retried_job_is_due(broker: Broker, transport: Transport) -> None:
    await submit(transport, 1)
    [delivery] = await broker.take(1)
    await broker.settle([ending(delivery, Retry(FAILURE, delay=0.05))])
    # the entries of the last take are acknowledged, so only the delay can end this wait
    async with asyncio.timeout(SOON):
        await broker.wait(60.0)
    assert len(await broker.take(1)) == 1


async def test_a_job_of_an_emptied_queue_is_still_answered_once(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    [job_id] = await submit(transport, 1)
    [delivery] = await broker.take(1)
    await queue.clear()
    assert await broker.append([EventGroup(delivery, 1, (b"on",))]) == [True]
    assert await broker.settle([ending(delivery, seq=2)]) == [True]
    assert await broker.settle([ending(delivery, seq=2)]) == [False]
    assert await transport.result(job_id) == b"result"
    assert await transport.state(job_id) == "completed"


async def test_an_emptied_queue_takes_jobs_again(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    await queue.clear()
    assert await broker.take(1) == []
    ids = await submit(transport, 2)
    assert [delivery.job_id for delivery in await broker.take(4)] == ids


@pytest.mark.parametrize("lane", names.DEFAULT_LANES)
async def test_a_wait_ends_when_a_job_is_submitted(broker: Broker, transport: Transport, lane: str) -> None:
    assert await broker.take(1) == []
    waiting = asyncio.create_task(broker.wait(60.0))
    await submit(transport, 1, lane)
    async with asyncio.timeout(SOON):
        await waiting
    assert len(await broker.take(1)) == 1


async def test_a_wait_ends_at_once_when_a_job_is_there(broker: Broker, transport: Transport) -> None:
    await submit(transport, 2)
    await broker.take(1)
    async with asyncio.timeout(SOON):
        await broker.wait(60.0)


async def test_no_wake_up_is_lost(broker: Broker, transport: Transport) -> None:
    claimed: asyncio.Queue[str] = asyncio.Queue()

    async def serve() -> None:
        while True:
            taken = await broker.take(4)
            for delivery in taken:
                claimed.put_nowait(delivery.job_id)
            await broker.settle([ending(delivery) for delivery in taken])
            if not taken:
                await broker.wait(60.0)

    serving = asyncio.create_task(serve())
    for number in range(200):
        lane, tenant = names.DEFAULT_LANES[number % 2], "acme" if number % 3 == 0 else None
        [job_id] = await transport.submit([new_job(lane=lane, tenant=tenant)])
        async with asyncio.timeout(SOON):
            assert await claimed.get() == job_id
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_wait_ends_after_its_timeout(broker: Broker) -> None:
    async with asyncio.timeout(SOON):
        await broker.wait(0.01)


async def test_a_wait_claims_nothing(queue: QueueUnderTest, broker: Broker, transport: Transport) -> None:
    await submit(transport, 1)
    await broker.wait(SOON)
    other = queue.broker("worker-2")
    await other.open()
    assert len(await other.take(1)) == 1


async def test_a_wait_ends_when_the_broker_is_closed(broker: Broker) -> None:
    waiting = asyncio.create_task(broker.wait(60.0))
    await asyncio.gather(*[broker.take(1) for _ in range(3)])
    await broker.close()
    async with asyncio.timeout(SOON):
        await waiting
    await broker.close()


@pytest.mark.parametrize("value", ["x", "", "-1", "1.5", "9" * 40])
@pytest.mark.parametrize("field", ["attempt", "seq", "queued_at", "crashes"])
async def test_a_job_whose_facts_cannot_be_believed_ends_alone(
    queue: QueueUnderTest, broker: Broker, transport: Transport, field: str, value: str
) -> None:
    spoilt, whole = await submit(transport, 2)
    await queue.change(spoilt, **{field: value})
    refused, claimed = await broker.take(8)
    assert isinstance(refused.verdict, Dead)
    assert (refused.verdict.failure.code, field in refused.verdict.failure.message) == (FailureCode.MALFORMED, True)
    assert (claimed.job_id, claimed.verdict) == (whole, None)
    assert await broker.settle([ending(refused, refused.verdict), ending(claimed)]) == [True, True]
    assert await queue.dead() == [(spoilt, "malformed")]
    assert await transport.result(spoilt)


@pytest.mark.parametrize("field", ["attempt", "seq", "queued_at", "crashes"])
async def test_a_running_job_whose_facts_are_spoilt_keeps_its_answer(
    queue: QueueUnderTest, broker: Broker, transport: Transport, field: str
) -> None:
    ids = await submit(transport, 2)
    held = await broker.take(2)
    await queue.change(ids[0], **{field: "x"})
    assert await broker.append([EventGroup(one, one.next_seq, (b"said",)) for one in held]) == [True, True]
    assert await broker.extend() == Held()
    assert await broker.settle([ending(one, seq=one.next_seq + 1) for one in held]) == [True, True]
    assert [await transport.result(job_id) for job_id in ids] == [b"result", b"result"]
    assert await queue.depth("interactive") == 0
