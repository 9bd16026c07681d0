import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoop.client import events
from stoop.errors import ClientUnusable, JobCancelled, JobExpired, JobFailed, NotFound, StoopError
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import CancelledEvent, DeltaEvent, Event, ExpiredEvent, FailedEvent, RestartedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Skill
from stoop_schemas.state import State
from tests.producer.scripted import ScriptedTransport, answer

JOB = Job(id="a", skill=Skill.QUERY, question="how many?")
EVENTS = answer(JOB)
SOON = 10.0


async def gather(transport: ScriptedTransport) -> list[Event]:
    return [event async for event in events.follow(transport, JOB.id)]


async def test_events_come_in_order_as_they_are_published() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    transport.publish(*EVENTS)
    assert await following == EVENTS


async def test_a_subscriber_after_the_end_reads_every_event_from_the_log() -> None:
    transport = ScriptedTransport()
    transport.publish(*EVENTS)
    assert await gather(transport) == EVENTS


async def test_repeated_events_are_dropped() -> None:
    transport = ScriptedTransport()
    transport.publish(*EVENTS[:3])
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    for event in EVENTS[:3]:
        transport.publish_only(event)
    transport.publish(*EVENTS[3:])
    assert await following == EVENTS


async def test_a_gap_is_filled_from_the_log() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    transport.publish(*EVENTS[:2])
    for event in EVENTS[2:-1]:
        transport.log_only(event)
    transport.publish(EVENTS[-1])
    assert await following == EVENTS


async def test_after_a_silence_the_log_is_read_again() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    for event in EVENTS:
        transport.log_only(event)
    transport.fall_silent(JOB.id)
    assert await following == EVENTS


async def test_a_restart_is_reported() -> None:
    transport = ScriptedTransport()
    restarted = RestartedEvent(id=JOB.id, seq=3, attempt=2)
    rest = [DeltaEvent(id=JOB.id, seq=4, attempt=2, text="x"), CancelledEvent(id=JOB.id, seq=5, attempt=2)]
    transport.publish(*EVENTS[:3], restarted, *rest)
    assert await gather(transport) == [*EVENTS[:3], restarted, *rest]


@pytest.mark.parametrize(
    ("result", "last"),
    [
        (Result(id="a", status=State.CANCELLED), CancelledEvent(id="a", seq=0, attempt=1)),
        (Result(id="a", status=State.EXPIRED), ExpiredEvent(id="a", seq=0, attempt=1)),
        (
            Result(id="a", status=State.FAILED, failure=Failure(FailureCode.INTERNAL, "x")),
            FailedEvent(id="a", seq=0, attempt=1, failure=Failure(FailureCode.INTERNAL, "x")),
        ),
    ],
)
async def test_after_the_log_expires_the_result_gives_the_last_event(result: Result, last: Event) -> None:
    transport = ScriptedTransport()
    transport.results["a"] = pack(result)
    assert await gather(transport) == [last]


async def test_a_log_that_fills_up_while_the_result_is_read_wins_over_it() -> None:
    class Late(ScriptedTransport):
        async def result(self, job_id: str) -> bytes | None:
            if not self.logs[job_id]:
                self.publish(*EVENTS)
            return await super().result(job_id)

    assert await gather(Late()) == EVENTS


async def test_a_reader_that_stops_early_leaves_no_subscription() -> None:
    transport = ScriptedTransport()
    transport.publish(*EVENTS)
    following = events.follow(transport, JOB.id)
    assert await anext(following) == EVENTS[0]
    assert transport.watchers(JOB.id) == 1
    await following.aclose()
    assert transport.watchers(JOB.id) == 0


async def test_a_result_is_found_at_once_or_waited_for() -> None:
    transport = ScriptedTransport()
    waiting = asyncio.create_task(events.wait(transport, JOB.id))
    await transport.subscribed.wait()
    transport.publish(*EVENTS[:3])
    transport.fall_silent(JOB.id)
    transport.publish(*EVENTS[3:])
    result = await waiting
    assert result.output is not None and result.output.answer == "two red circles"
    assert await events.wait(transport, JOB.id) == result
    assert transport.watchers(JOB.id) == 0


def newer(seq: int) -> bytes:
    """An event of a type that only a newer worker publishes."""
    return json.dumps({"type": "progress", "v": 1, "id": JOB.id, "seq": seq, "share": 0.5}).encode()


class Newer(ScriptedTransport):
    """A transport whose worker gives event 2 a type that is not known here; with `live` it is published too."""

    def __init__(self, *, live: bool) -> None:
        super().__init__()
        self.live = live

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        return [newer(2) if json.loads(packed)["seq"] == 2 else packed for packed in await super().log(job_id, after)]

    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async with super().subscribe(job_id) as subscription:

            async def published() -> AsyncIterator[bytes | None]:
                async for packed in subscription:
                    if packed is None or json.loads(packed)["seq"] != 2:
                        yield packed
                    elif self.live:
                        yield newer(2)

            yield published()


@pytest.mark.parametrize("live", [True, False])
async def test_events_of_an_unknown_type_are_passed_over_and_counted(live: bool) -> None:
    transport = Newer(live=live)
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    transport.publish(*EVENTS)
    assert await following == EVENTS[:2] + EVENTS[3:]
    assert await gather(transport) == EVENTS[:2] + EVENTS[3:]


async def test_an_end_of_an_unknown_type_is_read_from_the_result() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(gather(transport))
    waiting = asyncio.create_task(events.wait(transport, JOB.id))
    await transport.subscribed.wait()
    transport.publish(*EVENTS[:-1])
    transport.results[JOB.id] = pack(Result(id=JOB.id, status=State.CANCELLED))
    transport.seqs[JOB.id] = EVENTS[-1].seq + 1
    transport.publish_packed(JOB.id, newer(EVENTS[-1].seq))
    assert (await waiting).status is State.CANCELLED
    transport.fall_silent(JOB.id)
    assert (await following)[-1] == CancelledEvent(id=JOB.id, seq=EVENTS[-1].seq, attempt=1)


@pytest.mark.parametrize(
    "packed", [b"no JSON", b"\xff", b'{"type":"progress"}', b'{"type":"delta","v":1,"id":"a","seq":0}', b'{"v":9}']
)
async def test_an_unreadable_event_raises_an_error_of_the_client(packed: bytes) -> None:
    class Odd(ScriptedTransport):
        async def log(self, job_id: str, after: int = -1) -> list[bytes]:
            return [packed]

    with pytest.raises(StoopError, match="newer than this client"):
        await gather(Odd())
    transport = ScriptedTransport()
    transport.results[JOB.id] = packed
    with pytest.raises(StoopError, match="newer than this client"):
        await events.wait(transport, JOB.id)


class Ending(ScriptedTransport):
    @asynccontextmanager
    async def subscribe(self, job_id: str) -> AsyncIterator[AsyncIterator[bytes | None]]:
        async def nothing() -> AsyncIterator[bytes | None]:
            return
            yield

        yield nothing()


async def test_a_subscription_that_ends_is_an_error_not_a_hang() -> None:
    with pytest.raises(ClientUnusable, match="closed before job a"):
        await gather(Ending())
    with pytest.raises(ClientUnusable, match="closed before job a"):
        await events.wait(Ending(), JOB.id)


@pytest.mark.parametrize(
    ("status", "error"),
    [(State.FAILED, JobFailed), (State.CANCELLED, JobCancelled), (State.EXPIRED, JobExpired)],
)
def test_every_end_except_completion_is_raised(status: State, error: type[Exception]) -> None:
    with pytest.raises(error):
        events.completed(Result(id="a", status=status))


async def test_a_job_is_followed_from_its_first_event_where_less_was_asked_for() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(_gather_after(transport, -5))
    await transport.subscribed.wait()
    transport.publish(*EVENTS)
    assert await following == EVENTS


@pytest.mark.parametrize("after", [EVENTS[-1].seq, 999])
@pytest.mark.parametrize("log_has_expired", [False, True])
async def test_a_stream_that_is_resumed_after_its_end_has_ended(after: int, log_has_expired: bool) -> None:
    transport = ScriptedTransport()
    transport.publish(*EVENTS)
    if log_has_expired:
        transport.logs.clear()
    async with asyncio.timeout(SOON):
        assert [event async for event in events.follow(transport, JOB.id, after)] == []


async def test_an_end_that_is_made_of_the_result_has_its_own_number() -> None:
    transport = ScriptedTransport()
    transport.publish(*EVENTS)
    transport.logs.clear()
    assert [event async for event in events.follow(transport, JOB.id, 1)] == [EVENTS[-1]]


async def test_stream_and_wait_report_an_unknown_job_at_once() -> None:
    nobody = names.new_id()
    async with asyncio.timeout(SOON):
        with pytest.raises(NotFound, match=f"knows no job {nobody}"):
            await anext(events.follow(ScriptedTransport(), nobody))
        with pytest.raises(NotFound, match=f"knows no job {nobody}"):
            await events.wait(ScriptedTransport(), nobody)


async def test_an_id_that_no_client_made_is_given_time_until_a_worker_claims_it() -> None:
    transport = ScriptedTransport()
    following = asyncio.create_task(gather(transport))
    await transport.subscribed.wait()
    transport.fall_silent(JOB.id)
    transport.publish(*EVENTS)
    assert await following == EVENTS


async def _gather_after(transport: ScriptedTransport, after: int) -> list[Event]:
    return [event async for event in events.follow(transport, JOB.id, after)]


async def test_lasting_silence_ends_only_the_stream_of_an_unknown_job() -> None:
    transport = ScriptedTransport()
    transport.states[JOB.id] = "running"
    stream = events.follow(transport, JOB.id, silence=0.0)
    waiting = asyncio.create_task(anext(stream))
    await transport.subscribed.wait()
    for _ in range(3):
        transport.fall_silent(JOB.id)
    transport.publish(EVENTS[0])
    assert await waiting == EVENTS[0], "a long job of a live worker goes on"
    waiting = asyncio.create_task(anext(stream))
    del transport.states[JOB.id]
    transport.seqs.clear()
    transport.fall_silent(JOB.id)
    async with asyncio.timeout(SOON):
        with pytest.raises(NotFound, match="knows no job a"):
            await waiting
