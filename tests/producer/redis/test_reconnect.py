"""A client of a Redis that goes away in the middle misses nothing, repeats nothing and does not give up."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import redis
from redis.asyncio import Redis

from stoop import AsyncClient
from stoop.client.events import follow
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedRedis
from stoop.errors import QueueUnavailable
from stoop.redis.transport import RedisTransport
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import DeltaEvent, Event, FinishedEvent, QueuedEvent, StartedEvent
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from tests.producer.scripted import completed

SOON = 30.0
WORDS = [f"word{number} " for number in range(40)]


class Watched(RedisTransport):
    """Signals that a call could not reach Redis."""

    def __init__(self, url: str) -> None:
        super().__init__(url, silence=0.1)
        self.failed = asyncio.Event()

    async def log(self, job_id: str, after: int = -1) -> list[bytes]:
        try:
            return await super().log(job_id, after)
        except QueueUnavailable:
            self.failed.set()
            raise

    async def submit(self, jobs: Sequence[Job]) -> list[str]:
        try:
            return await super().submit(jobs)
        except QueueUnavailable:
            self.failed.set()
            raise


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(ProducerConfig(redis_url=redis_url), transport=Watched(redis_url)) as client:
        yield client


def whole(job_id: str) -> list[Event]:
    """The events of a job whose answer is the words."""
    events: list[Event] = [QueuedEvent(id=job_id, seq=0), StartedEvent(id=job_id, seq=1, attempt=1)]
    events += [DeltaEvent(id=job_id, seq=seq, attempt=1, text=word) for seq, word in enumerate(WORDS, start=2)]
    result = completed(job_id, Skill.QUERY, Output(answer="".join(WORDS)))
    return [*events, FinishedEvent(id=job_id, seq=len(events), attempt=1, result=result)]


async def publish(url: str, events: Sequence[Event]) -> None:
    """Log and publish, as a worker does."""
    async with Redis.from_url(url, protocol=2) as worker:
        for event in events:
            if isinstance(event, FinishedEvent):
                await worker.set(names.result(event.id), pack(event.result))
            await worker.xadd(names.log(event.id), {"e": pack(event)}, id=f"{event.seq + 1}-0")
            await worker.publish(names.events(event.id), pack(event))


async def kill_connections(url: str) -> int:
    async with Redis.from_url(url, protocol=2) as operator:
        killed = await operator.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        return int(killed + await operator.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))


async def test_a_stream_of_text_outlives_a_restart_of_redis(
    client: AsyncClient, redis_url: str, redis_server: EmbeddedRedis
) -> None:
    text = (await client.query(question="?", stream=True))["answer"]
    events = whole(text.job_id)
    async with asyncio.timeout(SOON):
        await publish(redis_url, events[:20])
        pieces = [await anext(text)]
        redis_server.kill()
        transport = client._transport
        assert isinstance(transport, Watched)
        reading = asyncio.create_task(collect(text))
        await transport.failed.wait()
        redis_server.restart()
        await publish(redis_url, events[20:])
        assert "".join(pieces + await reading) == "".join(WORDS)


async def collect(text: AsyncIterator[str]) -> list[str]:
    return [piece async for piece in text]


async def test_events_published_while_every_connection_is_killed_are_not_missed(
    client: AsyncClient, redis_url: str
) -> None:
    job_id = await client.submit(await client.prepare("query", question="?", stream=True))
    events = whole(job_id)
    seen: list[Event] = []
    kills = 0
    async with asyncio.timeout(SOON):
        await publish(redis_url, events[:1])
        async for event in client.stream(job_id):
            seen.append(event)
            if event.seq % 7 == 0 and event.seq + 1 < len(events):
                kills += await kill_connections(redis_url)
                await publish(redis_url, events[event.seq + 1 : event.seq + 8])
    assert seen == events
    assert kills > 7, "the subscriber's connection was killed each time"


async def test_a_result_is_waited_for_across_a_restart(
    client: AsyncClient, redis_url: str, redis_server: EmbeddedRedis
) -> None:
    job_id = await client.submit(await client.prepare("query", question="?"))
    waiting = asyncio.create_task(client.result(job_id))
    async with asyncio.timeout(SOON):
        async with client._transport.subscribe(job_id) as subscription:
            redis_server.kill()
            redis_server.restart()
            assert await anext(subscription) is None
        await publish(redis_url, whole(job_id))
        assert (await waiting).output == Output(answer="".join(WORDS))


async def test_jobs_are_submitted_when_redis_is_back(
    client: AsyncClient, redis_url: str, redis_server: EmbeddedRedis
) -> None:
    transport = client._transport
    assert isinstance(transport, Watched)
    jobs = [await client.prepare("query", question=f"{number}?") for number in range(2)]

    async def line() -> AsyncIterator[Job]:
        yield jobs[0]
        redis_server.kill()
        yield jobs[1]

    async def mend() -> None:
        await transport.failed.wait()
        redis_server.restart()
        for job in jobs:
            await publish(redis_url, whole(job.id))

    async with asyncio.timeout(SOON):
        mending = asyncio.create_task(mend())
        outcomes = {job.id: outcome async for job, outcome in client.gather(line())}
        await mending
    assert set(outcomes) == {job.id for job in jobs}
    assert all(isinstance(outcome, Result) for outcome in outcomes.values())
    with redis.Redis.from_url(redis_url) as counter:
        assert counter.xlen(names.lane("interactive")) == 2


async def test_an_outage_that_does_not_end_is_reported(
    client: AsyncClient, redis_url: str, redis_server: EmbeddedRedis
) -> None:
    job_id = await client.submit(await client.prepare("query", question="?"))
    events = follow(client._transport, job_id, outage_seconds=0.0)
    assert await anext(events) == QueuedEvent(id=job_id, seq=0)
    redis_server.kill()
    try:
        with pytest.raises(QueueUnavailable, match=r"127\.0\.0\.1"):
            async with asyncio.timeout(SOON):
                await anext(events)
    finally:
        redis_server.restart()
