"""Answers that take several jobs: their tokens, and what happens if one of the jobs fails."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from stoop.client.async_client import AsyncClient
from stoop.config import ProducerConfig
from stoop.errors import JobFailed
from stoop.gateway.answer import answer_jobs
from stoop.gateway.ask import Ask
from stoop.gateway.call import Call
from stoop.gateway.errors import from_stoop
from stoop.gateway.gateway import Gateway
from stoop.gateway.keys import OPEN
from stoop.gateway.options import ServeOptions
from stoop.gateway.submission import prepare
from stoop_schemas.event import Event, FailedEvent, FinishedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import ID_LIMIT, Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Skill
from stoop_schemas.state import State
from tests.producer.scripted import ScriptedTransport

SECONDS = 10.0


def job(id: str) -> Job:
    return Job(id=id, skill=Skill.EMBED, input=["a"])


def events_of(job: Job) -> Iterator[Event]:
    """Finish the jobs that are named by numbers, with as many tokens, and fail those that are bad."""
    if job.id.isdecimal():
        metrics = Metrics(input_tokens=int(job.id))
        result = Result(id=job.id, status=State.COMPLETED, skill=Skill.EMBED, metrics=metrics)
        yield FinishedEvent(id=job.id, seq=0, result=result)
    elif job.id == "bad":
        yield FailedEvent(id=job.id, seq=0, failure=Failure.of(FailureCode.CONTEXT_OVERFLOW, "too long"))


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport(events_of)


@pytest.fixture
def call(transport: ScriptedTransport) -> Call:
    config = ProducerConfig()
    gateway = Gateway(config, ServeOptions(open=True))
    gateway.client = AsyncClient(config, transport=transport)

    async def receive() -> Any:
        await asyncio.get_running_loop().create_future()

    state = {"given": {}, "facts": {}, "closers": [], "tokens": 0, "request_id": "r"}
    return Call(gateway, Request({"type": "http", "state": state}, receive), OPEN)


async def test_the_tokens_of_all_jobs_are_counted(call: Call) -> None:
    async with call.gateway.running(), asyncio.timeout(SECONDS):
        await answer_jobs(call, [job("3"), job("5")], lambda results: [result.id for result in results])
    assert call.state.tokens == call.state.facts["tokens"] == 8
    assert call.headers["x-stoop-job-id"] == "3, 5"


async def test_a_failure_cancels_the_other_jobs_and_leaves_the_spent_tokens_counted(
    call: Call, transport: ScriptedTransport
) -> None:
    async with call.gateway.running(), asyncio.timeout(SECONDS):
        with pytest.raises(JobFailed, match="too long") as caught:
            await answer_jobs(call, [job("3"), job("bad"), job("endless")], lambda results: results)
    error = from_stoop(caught.value, call.headers.get("x-stoop-job-id"))
    assert error.headers["x-stoop-job-id"] == "bad"
    assert "x-stoop-job-id" not in call.headers, "it would name the job that was submitted last"
    assert call.state.tokens == 3
    assert transport.cancelled == ["endless"]


async def test_each_job_has_an_idempotency_key_of_its_own_even_if_the_caller_s_is_as_long_as_it_may_be(
    call: Call,
) -> None:
    call.state.given[b"idempotency-key"] = b"k" * ID_LIMIT
    ask = Ask(Skill.EMBED.value, fields={"input": ["a"]})
    async with call.gateway.running(), asyncio.timeout(SECONDS):
        keys = [(await prepare(call, ask, part)).idempotency_key for part in (0, 1, 2, 1)]
    assert keys[0] == "k" * ID_LIMIT
    assert len(set(keys)) == 3 and keys[1] == keys[3]
