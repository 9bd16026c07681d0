"""A job submitted and waited for in one go, on a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.errors import InvalidJob, JobFailed, QueueUnavailable, TimedOut
from stoop_schemas import names
from stoop_schemas.codec import pack
from stoop_schemas.event import FailedEvent, FinishedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Output
from stoop_schemas.state import State
from stoop_worker.jobs.broker import Broker, Settlement
from stoop_worker.jobs.outcome import Completed, Failed
from tests.contract.queues import OnRedis

SOON = 20.0
FAILURE = Failure.of(FailureCode.INTERNAL, "no reason")


@pytest.fixture
async def queue(redis_url: str) -> AsyncIterator[OnRedis]:
    queue = OnRedis(redis_url)
    yield queue
    await queue.close()


@pytest.fixture
async def client(queue: OnRedis) -> AsyncIterator[AsyncClient]:
    # to its transport, half a minute without an event is a silence, after which it would read the result
    async with AsyncClient(ProducerConfig(), transport=queue.transport()) as client:
        yield client


@pytest.fixture
async def broker(queue: OnRedis) -> Broker:
    broker = queue.broker("worker")
    await broker.open()
    return broker


async def settle_next(broker: Broker, answer: str | None) -> None:
    """Answer the next job, or let it fail, as soon as it is there."""
    while not (taken := await broker.take(1)):
        await asyncio.sleep(0.01)
    [delivery] = taken
    numbered: dict[str, Any] = {"id": delivery.job_id, "seq": delivery.next_seq, "attempt": 1}
    if answer is None:
        result = Result(id=delivery.job_id, status=State.FAILED, skill="query", failure=FAILURE, attempt=1)
        settlement = Settlement(
            delivery, Failed(FAILURE), delivery.next_seq, pack(FailedEvent(**numbered, failure=FAILURE)), pack(result)
        )
    else:
        output = Output(answer=answer)
        result = Result(id=delivery.job_id, status=State.COMPLETED, skill="query", output=output, attempt=1)
        event = pack(FinishedEvent(**numbered, result=result))
        settlement = Settlement(delivery, Completed(), delivery.next_seq, event, pack(result))
    assert all(await broker.settle([settlement]))


async def is_cancelled(queue: OnRedis, job: Job) -> bool:
    return bool(await queue.call("HGET", names.job(job.id), "cancel"))


async def question(client: AsyncClient, **fields: Any) -> Job:
    return await client.prepare("query", question="what?", **fields)


async def test_the_answer_comes_without_a_look_at_the_result(
    queue: OnRedis, client: AsyncClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine a subscription may take long, and without one the client looks at the result
    monkeypatch.setattr("stoop.client.job_client._LISTEN_SECONDS", SOON)

    async def reads() -> int:
        stats: dict[str, Any] = await queue.call("INFO", "commandstats")
        return int(stats.get("cmdstat_get", {}).get("calls", 0))

    ids: list[str] = []
    job = await question(client)
    async with asyncio.timeout(SOON):
        before = await reads()
        settling = asyncio.create_task(settle_next(broker, "shapes"))
        result = await client.submit_and_wait(job, on_submitted=ids.append)
        await settling
        assert result.output == Output(answer="shapes")
        assert (ids, await reads() - before) == ([job.id], 0)


async def test_a_failure_and_a_timeout_are_errors(queue: OnRedis, client: AsyncClient, broker: Broker) -> None:
    async with asyncio.timeout(SOON):
        settling = asyncio.create_task(settle_next(broker, None))
        with pytest.raises(JobFailed, match="no reason"):
            await client.submit_and_wait(await question(client))
        await settling
        job = await question(client)
        with pytest.raises(TimedOut):
            await client.submit_and_wait(job, timeout=0.05)
        assert not await is_cancelled(queue, job), "it goes on"
        job = await question(client)
        with pytest.raises(TimedOut):
            await client.submit_and_wait(job, timeout=0.05, cancel_on_exit=True)
        assert await is_cancelled(queue, job)


async def test_a_repeated_job_gets_the_first_one_s_answer(client: AsyncClient, broker: Broker) -> None:
    async with asyncio.timeout(SOON):
        first = await question(client, idempotency_key="once")
        await client.submit(first)
        settling = asyncio.create_task(settle_next(broker, "shapes"))
        ids: list[str] = []
        again = await question(client, idempotency_key="once")
        result = await client.submit_and_wait(again, on_submitted=ids.append, cancel_on_exit=True)
        await settling
        assert (result.id, ids) == (first.id, [first.id])


async def test_cancelling_the_wait_cancels_the_job(queue: OnRedis, client: AsyncClient) -> None:
    submitted = asyncio.Event()
    job = await question(client)
    async with asyncio.timeout(SOON):
        waiting = asyncio.create_task(
            client.submit_and_wait(job, cancel_on_exit=True, on_submitted=lambda _: submitted.set())
        )
        await submitted.wait()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert await is_cancelled(queue, job)


async def test_a_wrong_job_and_a_redis_that_is_away_are_reported_soon() -> None:
    async with AsyncClient(ProducerConfig(redis_url="redis://127.0.0.1:1/0")) as client, asyncio.timeout(SOON):
        job = Job(id=names.new_id(), skill="query")
        with pytest.raises(InvalidJob, match="question"):
            await client.submit_and_wait(job)
        with pytest.raises(QueueUnavailable):
            await client.submit_and_wait(Job(id=names.new_id(), skill="query", question="what?"))
