"""The contract of every transport, on the queue in memory and on a real Redis."""

import asyncio

import msgspec
import pytest

from stoop.client.transport import Transport
from stoop.errors import IdempotencyConflict, InvalidJob, QueueFull
from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.event import QueuedEvent
from stoop_worker.jobs.broker import Broker, EventGroup
from tests.contract.queues import QueueUnderTest, ending, new_job

SOON = 10.0


async def test_a_submitted_job_arrives_whole(broker: Broker, transport: Transport) -> None:
    job = new_job(metadata={"é": "ü"}, lane="bulk", stream=True)
    assert await transport.submit([job]) == [job.id]
    [delivery] = await broker.take(1)
    assert unpack_job(delivery.packed) == job
    assert delivery.lane == "bulk"


async def test_many_jobs_in_one_call_keep_their_order(broker: Broker, transport: Transport) -> None:
    jobs = [new_job(lane=("interactive", "bulk")[i % 2]) for i in range(300)]
    assert await transport.submit(jobs) == [job.id for job in jobs]
    taken = [delivery.job_id for delivery in await broker.take(300)]
    assert taken == [job.id for job in jobs[::2]] + [job.id for job in jobs[1::2]]


async def test_submitting_no_jobs_does_nothing(transport: Transport) -> None:
    assert await transport.submit([]) == []


async def test_an_unknown_job_has_no_result_state_or_log(transport: Transport) -> None:
    assert await transport.result("unknown") is None
    assert await transport.state("unknown") is None
    assert await transport.log("unknown") == []
    assert await transport.next_seq("unknown") is None


async def test_a_submitted_job_is_queued(broker: Broker, transport: Transport) -> None:
    job = new_job()
    queued = pack(QueuedEvent(id=job.id, seq=0))
    async with transport.subscribe(job.id) as published:
        await transport.submit([job])
        assert await anext(published) == queued
    assert await transport.state(job.id) == "queued"
    assert await transport.log(job.id) == [queued]
    assert await transport.log(job.id, after=0) == []
    await broker.take(1)
    assert await transport.log(job.id) == [queued], "the event is the same once a worker has the job"
    assert await transport.state(job.id) == "running"


async def test_the_same_key_is_the_same_job(queue: QueueUnderTest, transport: Transport) -> None:
    first, second = new_job(idempotency_key="a key"), new_job(idempotency_key="a key")
    assert await transport.submit([first]) == [first.id]
    assert await transport.submit([second, new_job(id="other"), second]) == [first.id, "other", first.id]
    assert await transport.submit([first]) == [first.id]
    assert await queue.depth("interactive") == 2


async def test_tenants_do_not_share_idempotency_keys(transport: Transport) -> None:
    """Otherwise a tenant could learn the id of another's job, and read its answer."""
    jobs = [
        new_job(idempotency_key="a key", tenant=tenant, question=f"{tenant}?") for tenant in ("acme", "rival", None)
    ]
    jobs.append(new_job(idempotency_key="acme/a key"))
    for job in jobs:
        assert await transport.submit([job]) == [job.id]
    assert await transport.submit(jobs) == [job.id for job in jobs]


async def test_the_same_key_twice_in_a_call_is_one_job(queue: QueueUnderTest, transport: Transport) -> None:
    first, second = new_job(idempotency_key="a key"), new_job(idempotency_key="a key")
    assert await transport.submit([first, second]) == [first.id, first.id]
    assert await queue.depth("interactive") == 1


async def test_the_same_key_is_the_same_job_after_its_end(broker: Broker, transport: Transport) -> None:
    job = new_job(idempotency_key="a key")
    await transport.submit([job])
    await broker.settle([ending((await broker.take(1))[0])])
    assert await transport.submit([new_job(idempotency_key="a key")]) == [job.id]
    assert await broker.take(1) == []


async def test_a_key_is_free_again_when_its_job_is_forgotten(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    """Otherwise a job would get the id of a forgotten one, and never run."""
    first, second, third = (new_job(idempotency_key="a key") for _ in range(3))
    await transport.submit([first])
    await broker.settle([ending((await broker.take(1))[0])])
    await queue.forget(first.id)
    assert await transport.submit([second]) == [second.id]
    assert await transport.state(second.id) == "queued"
    assert await transport.submit([third]) == [second.id]
    assert [delivery.job_id for delivery in await broker.take(2)] == [second.id]


async def test_another_job_under_a_key_is_a_conflict(queue: QueueUnderTest, transport: Transport) -> None:
    job = new_job(idempotency_key="a key")
    await transport.submit([job])
    with pytest.raises(IdempotencyConflict) as conflict:
        await transport.submit([new_job(), new_job(idempotency_key="a key", question="What else?")])
    assert (conflict.value.job_id, conflict.value.taken) == (job.id, "key")
    assert "idempotency key" in str(conflict.value)
    assert await queue.depth("interactive") == 1, "all of a call is put, or nothing"


async def test_a_job_submitted_again_is_put_once(queue: QueueUnderTest, transport: Transport) -> None:
    job, keyed = new_job(), new_job(idempotency_key="a key")
    assert await transport.submit([job]) == [job.id]
    assert await transport.submit([job]) == [job.id]
    assert await queue.depth("interactive") == 1
    await transport.submit([keyed])
    for other in (
        msgspec.structs.replace(job, question="What else?"),
        msgspec.structs.replace(job, idempotency_key="another key"),
        msgspec.structs.replace(keyed, question="What else?"),
    ):
        with pytest.raises(IdempotencyConflict, match=f"the id {other.id} belongs to a different job") as conflict:
            await transport.submit([other])
        assert (conflict.value.job_id, conflict.value.taken) == (other.id, "id")


async def test_a_raw_job_s_id_is_not_given_to_another(
    queue: QueueUnderTest, broker: Broker, transport: Transport
) -> None:
    await queue.put("interactive", {"j": '{"id": "mine"}'})
    await broker.take(1)
    with pytest.raises(IdempotencyConflict):
        await transport.submit([new_job(id="mine")])


async def test_a_lane_at_its_bound_is_full(queue: QueueUnderTest, broker: Broker) -> None:
    transport = queue.transport(bounds={"interactive": 3})
    await transport.submit([new_job(), new_job()])
    with pytest.raises(QueueFull) as full:
        await transport.submit([new_job(), new_job()])
    assert 1.0 <= full.value.retry_after <= 60.0
    assert await queue.depth("interactive") == 2, "all of a call is put, or nothing"
    await transport.submit([new_job()])
    await transport.submit([new_job(lane="bulk")])
    await broker.settle([ending((await broker.take(1))[0])])
    await transport.submit([new_job()])


async def test_jobs_that_tasks_submit_at_once_are_put_or_refused_one_by_one(queue: QueueUnderTest) -> None:
    transport, first = queue.transport(bounds={"interactive": 3}), new_job(idempotency_key="a key")
    await transport.submit([first])
    repeated, other = new_job(idempotency_key="a key"), new_job(idempotency_key="a key", question="What else?")
    elsewhere, more = new_job(lane="bulk"), [new_job() for _ in range(4)]
    calls = [transport.submit([job]) for job in (repeated, other, elsewhere, *more)]
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert replies[0] == [first.id]
    assert isinstance(replies[1], IdempotencyConflict)
    assert replies[2] == [elsewhere.id]
    assert sum(isinstance(reply, QueueFull) for reply in replies[3:]) == 2
    assert sum(reply == [job.id] for reply, job in zip(replies[3:], more, strict=True)) == 2
    assert await queue.depth("interactive") == 3


async def test_a_job_that_is_there_finds_no_lane_full(queue: QueueUnderTest) -> None:
    transport, job = queue.transport(bounds={"interactive": 1}), new_job()
    await transport.submit([job])
    assert await transport.submit([job]) == [job.id]


@pytest.mark.parametrize(
    "fields",
    [
        {"lane": "two words"},
        {"lane": "{1}"},
        {"lane": "quarantine:alone"},
        {"lane": "quarantine:other"},
        {"lane": "qwen3:quarantine:other"},
        {"id": "a b"},
        {"question": ""},
    ],
)
async def test_a_job_that_breaks_the_contract_is_refused(
    queue: QueueUnderTest, transport: Transport, fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidJob):
        await transport.submit([new_job(), new_job(**fields)])
    assert await queue.depth("interactive") == 0


async def test_a_log_is_read_from_before_its_first_event_and_behind_its_last(
    broker: Broker, transport: Transport
) -> None:
    job = new_job()
    await transport.submit([job])
    assert len(await transport.log(job.id, after=-5)) == 1
    await broker.take(1)
    assert len(await transport.log(job.id, after=-5)) == 1
    for after in (7, (1 << 63) - 1, 1 << 64, 10**30):
        assert await transport.log(job.id, after=after) == []


async def test_a_late_subscriber_reads_the_log(broker: Broker, transport: Transport) -> None:
    job = new_job()
    await transport.submit([job])
    [delivery] = await broker.take(1)
    await broker.append([EventGroup(delivery, 1, (b"one", b"two"))])
    async with transport.subscribe(job.id) as published:
        assert (await transport.log(job.id))[1:] == [b"one", b"two"]
        await broker.append([EventGroup(delivery, 3, (b"three",))])
        assert await anext(published) == b"three"


async def test_the_number_of_events_is_known_to_the_end(broker: Broker, transport: Transport) -> None:
    job = new_job()
    await transport.submit([job])
    assert await transport.next_seq(job.id) == 1
    [delivery] = await broker.take(1)
    await broker.append([EventGroup(delivery, 1, (b"one", b"two"))])
    assert await transport.next_seq(job.id) == 3
    await broker.settle([ending(delivery, seq=3)])
    assert await transport.next_seq(job.id) == 4


async def test_each_subscriber_gets_only_its_jobs_events(broker: Broker, transport: Transport) -> None:
    jobs = [new_job(), new_job()]
    async with (
        transport.subscribe(jobs[0].id) as first,
        transport.subscribe(jobs[0].id) as second,
        transport.subscribe(jobs[1].id) as other,
    ):
        await transport.submit(jobs)
        assert await anext(first) == await anext(second) == pack(QueuedEvent(id=jobs[0].id, seq=0))
        assert await anext(other) == pack(QueuedEvent(id=jobs[1].id, seq=0))
        deliveries = await broker.take(2)
        await broker.append([EventGroup(delivery, 1, (delivery.job_id.encode(),)) for delivery in deliveries])
        assert [await anext(first), await anext(second), await anext(other)] == [
            jobs[0].id.encode(),
            jobs[0].id.encode(),
            jobs[1].id.encode(),
        ]


async def test_a_subscriber_that_leaves_takes_no_other_s_messages(broker: Broker, transport: Transport) -> None:
    job = new_job()
    async with transport.subscribe(job.id) as stays:
        async with transport.subscribe(job.id):
            pass
        await transport.submit([job])
        assert await anext(stays) == pack(QueuedEvent(id=job.id, seq=0))
    async with transport.subscribe(job.id) as again:
        [delivery] = await broker.take(1)
        await broker.append([EventGroup(delivery, 1, (b"one",))])
        assert await anext(again) == b"one"


async def test_a_silence_is_reported(queue: QueueUnderTest) -> None:
    async with queue.transport(silence=0.01).subscribe("quiet") as published, asyncio.timeout(SOON):
        assert await anext(published) is None


async def test_a_subscriber_that_falls_behind_is_sent_to_the_log(broker: Broker, transport: Transport) -> None:
    job, last = new_job(), new_job()
    async with transport.subscribe(job.id) as slow, transport.subscribe(last.id) as quick:
        await transport.submit([job])
        [delivery] = await broker.take(1)
        events = tuple(f"event {i}".encode() for i in range(1000))
        await broker.append([EventGroup(delivery, 1, events)])
        await transport.submit([last])
        await anext(quick)
        heard = [await anext(slow)]
        assert heard == [None], "what is unread is dropped for it"
        while heard[-1] != events[-1]:
            heard.append(await anext(slow))
        assert len(heard) <= 257
    assert (await transport.log(job.id))[1:] == list(events)


async def test_closing_ends_the_subscriptions(queue: QueueUnderTest) -> None:
    transport = queue.transport()
    async with transport.subscribe("any") as published, asyncio.timeout(SOON):
        ends = asyncio.create_task(anext(published, b"the end"))
        await transport.state("any")
        await transport.close()
        assert await ends == b"the end"
    await transport.close()


async def test_a_forgotten_job_is_unknown_and_one_that_has_not_ended_is_not_forgotten(
    broker: Broker, transport: Transport
) -> None:
    ended, running, waiting = await transport.submit([new_job() for _ in range(3)])
    deliveries = await broker.take(2)
    assert await broker.settle([ending(deliveries[0])]) == [True]
    await transport.forget([ended, running, waiting, "unknown"])
    assert (await transport.state(ended), await transport.result(ended), await transport.log(ended)) == (None, None, [])
    assert await transport.state(running) == "running"
    assert await transport.state(waiting) == "queued"
    assert await broker.settle([ending(deliveries[1])]) == [True]
    assert await transport.result(running) == b"result"
    await transport.forget([])
