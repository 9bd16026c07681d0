import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from stoop.client.async_client import AsyncClient
from stoop.errors import QueueUnavailable
from stoop.gateway.kserve.ask import Value
from stoop.gateway.kserve.triton_model import TritonModel
from stoop_schemas.event import DeltaEvent, Event, QueuedEvent, StartedEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.worker import WorkerRecord
from tests.producer.scripted import Script, ScriptedTransport, answer, failing

SECONDS = 60.0
IMAGE = b"data:image/png;base64,AAAA"
QUERY: dict[str, Value] = {"SKILL": b"query", "QUESTION": b"How many?", "IMAGE": IMAGE}


class Recorded:
    """A request whose responses are kept."""

    def __init__(self, **inputs: Value) -> None:
        self.id = "r1"
        self.given = {name: [value] for name, value in inputs.items()}
        self.texts: list[dict[str, Any]] = []
        self.errors: list[tuple[str, str]] = []
        self.ended = 0
        self.left = False
        self.sent = asyncio.Event()

    def inputs(self) -> Mapping[str, Sequence[Value]]:
        return self.given

    def is_cancelled(self) -> bool:
        return self.left

    def send(self, text: str) -> None:
        assert not self.ended
        self.texts.append(msgspec.json.decode(text))
        self.sent.set()

    def fail(self, code: str, message: str) -> None:
        assert not self.ended
        self.errors.append((code, message))
        self.ended += 1

    def end(self) -> None:
        self.ended += 1


def begun(job: Job) -> list[Event]:
    """A worker that writes one piece, and then nothing."""
    return [
        QueuedEvent(id=job.id, seq=0),
        StartedEvent(id=job.id, seq=1, attempt=1),
        DeltaEvent(id=job.id, seq=2, attempt=1, text="two"),
    ]


def new_model(transport: ScriptedTransport, **config: Any) -> TritonModel:
    return TritonModel(AsyncClient(transport=transport, redis_url="redis://unused", **config))


async def answered(script: Script, **inputs: Value) -> Recorded:
    request = Recorded(**inputs)
    async with asyncio.timeout(SECONDS):
        await new_model(ScriptedTransport(script)).answer(request)
    assert request.ended == 1
    return request


async def test_one_response_has_the_whole_answer() -> None:
    request = await answered(answer, **QUERY)
    [text] = request.texts
    assert (text["answer"], text["request_id"], "completed" in text) == ("two red circles", "r1", False)


async def test_a_stream_ends_with_the_completed_response() -> None:
    request = await answered(answer, **QUERY, STREAM=True)
    assert [text["completed"] for text in request.texts] == [False] * (len(request.texts) - 1) + [True]
    assert "".join(text["chunk"] for text in request.texts) == "two red circles"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_failed_job_is_an_error_with_its_code(streams: bool) -> None:
    script = failing(Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing there"))
    request = await answered(script, **QUERY, STREAM=streams)
    [(code, message)] = request.errors
    assert code == "NOT_FOUND"
    assert message.startswith("image_not_found: nothing there")
    assert not request.texts


@pytest.mark.parametrize(
    ("inputs", "code", "expected"),
    [
        ({"SKILL": b"query"}, "INVALID_ARG", "needs a question"),
        ({"QUESTION": b"?"}, "INVALID_ARG", "SKILL"),
        ({**QUERY, "MAX_TOKENS": 0}, "INVALID_ARG", "MAX_TOKENS is 0"),
        ({"SKILL": b"segment", "OBJECT": b"cat", "IMAGE": IMAGE}, "UNSUPPORTED", "detect gives boxes"),
        ({**QUERY, "MODEL": b"no-such"}, "NOT_FOUND", "model_not_found: no worker serves the model 'no-such'"),
    ],
    ids=["no question", "no skill", "no tokens", "segment", "unknown model"],
)
async def test_a_wrong_request_is_an_error_and_submits_no_job(
    inputs: dict[str, Value], code: str, expected: str
) -> None:
    transport, request = ScriptedTransport(answer), Recorded(**inputs)
    await new_model(transport).answer(request)
    [(found, message)] = request.errors
    assert (found, request.ended, transport.submitted) == (code, 1, [])
    assert expected in message


@pytest.mark.parametrize("streams", [False, True])
async def test_a_caller_that_leaves_cancels_its_job_and_the_request_ends(streams: bool) -> None:
    transport, request = ScriptedTransport(begun), Recorded(**QUERY, STREAM=streams)
    async with asyncio.timeout(SECONDS):
        answering = asyncio.create_task(new_model(transport).answer(request))
        await (request.sent.wait() if streams else transport.subscribed.wait())
        request.left = True
        await answering
    assert transport.cancelled == [job.id for job in transport.submitted]
    assert len(transport.cancelled) == 1
    assert (request.ended, request.errors) == (1, [])


async def test_a_caller_that_stays_cancels_nothing() -> None:
    transport, request = ScriptedTransport(answer), Recorded(**QUERY, STREAM=True)
    await new_model(transport).answer(request)
    assert transport.cancelled == []


async def test_the_model_and_the_adapter_of_a_request_reach_its_job() -> None:
    transport, request = ScriptedTransport(answer), Recorded(**QUERY, MODEL=b"moondream3-preview/ft@7", LANE=b"bulk")
    transport.records = [WorkerRecord(name="moondream3-preview", lanes=("bulk",))]
    await new_model(transport).answer(request)
    [job] = transport.submitted
    assert (job.model, job.settings.adapter, job.lane) == ("moondream3-preview", "ft@7", "bulk")


async def test_the_configured_model_answers_requests_that_name_none() -> None:
    transport, request = ScriptedTransport(answer), Recorded(**QUERY)
    await new_model(transport, job_model="moondream2").answer(request)
    assert [job.model for job in transport.submitted] == ["moondream2"]


async def test_a_defect_is_an_error_without_content_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    def broken(job: Job) -> list[Event]:
        raise RuntimeError(job.question)

    with caplog.at_level(logging.ERROR):
        request = await answered(broken, **QUERY)
    assert request.errors == [("INTERNAL", "internal: the model failed")]
    assert "RuntimeError" in caplog.text
    assert "How many?" not in caplog.text


async def test_it_is_ready_while_a_worker_lives() -> None:
    transport = ScriptedTransport()
    model = new_model(transport)
    assert await model.is_ready()
    transport.records = []
    assert not await model.is_ready()


async def test_with_another_model_it_waits_for_a_worker_of_that_one() -> None:
    transport = ScriptedTransport()
    model = new_model(transport, job_model="moondream2")
    assert not await model.is_ready()
    transport.records = [WorkerRecord(name="moondream2", lanes=("interactive",))]
    assert await model.is_ready()


async def test_it_is_not_ready_without_redis() -> None:
    class Away(ScriptedTransport):
        async def workers(self, partition: int = 0) -> list[WorkerRecord]:
            raise QueueUnavailable("away")

    assert not await new_model(Away()).is_ready()


async def test_closing_disconnects_from_another_thread() -> None:
    transport = ScriptedTransport(answer)
    model = new_model(transport)
    await model.answer(Recorded(**QUERY))
    await asyncio.to_thread(model.close)
    assert transport.closed == 1


def test_closing_a_model_that_answered_nothing_needs_no_event_loop() -> None:
    new_model(ScriptedTransport()).close()
