"""A job in a lane that no worker serves waits unnoticed, unless a warning is logged."""

import logging

import pytest

from stoop.client.job_client import JobClient
from stoop.client.models import LiveModel
from stoop.errors import QueueUnavailable
from stoop_schemas.allowed import AllowedBuckets
from stoop_schemas.job import Job
from stoop_schemas.skill import Skill
from stoop_schemas.worker import WorkerRecord
from tests.producer.scripted import ScriptedTransport

MOON = WorkerRecord(
    name="moondream2",
    model="vikhyatk/moondream2@9a7d",
    skills=("query", "caption"),
    max_context=2048,
    lanes=("interactive", "bulk", "moondream2:interactive", "moondream2:bulk"),
    permits=8,
    in_flight=3,
)


def client_of(transport: ScriptedTransport) -> JobClient:
    return JobClient(transport, allowed=AllowedBuckets(), timeout_seconds=10.0)


def job(job_id: str, **fields: object) -> Job:
    return Job(id=job_id, skill=Skill.QUERY, question="?", **fields)  # type: ignore[arg-type]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lane": "typo"}, ("the lane typo", "moondream2", "bulk, interactive")),
        (
            {"model": "qwen3-8b"},
            ("the model qwen3-8b (lane qwen3-8b:interactive)", "live workers serve the models moondream2"),
        ),
    ],
)
async def test_a_job_without_a_worker_is_warned_about_once(
    caplog: pytest.LogCaptureFixture, fields: dict[str, str], words: tuple[str, ...]
) -> None:
    transport = ScriptedTransport()
    transport.records = [MOON]
    client = client_of(transport)
    for number in range(3):
        assert await client.submit(job(f"a-{number}", **fields)) == f"a-{number}"
    [warning] = warnings(caplog)
    assert all(word in warning for word in words)
    assert transport.looks == 1


async def test_a_served_job_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    transport = ScriptedTransport()
    transport.records = [MOON]
    client = client_of(transport)
    await client.submit_many([job("a"), job("b", lane="bulk"), job("c", model="moondream2")])
    assert warnings(caplog) == []


async def test_without_any_worker_the_warning_names_the_command_that_starts_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = ScriptedTransport()
    transport.records = []
    await client_of(transport).submit(job("a"))
    [warning] = warnings(caplog)
    assert "stoop worker" in warning


async def test_an_unreadable_registry_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Closed(ScriptedTransport):
        async def workers(self, partition: int = 0) -> list[WorkerRecord]:
            raise QueueUnavailable("refused")

    client = client_of(Closed())
    assert await client.submit(job("a")) == "a"
    assert warnings(caplog) == []
    with pytest.raises(QueueUnavailable):
        await client.models()


async def test_models_are_gathered_from_the_records_the_default_first() -> None:
    transport = ScriptedTransport()
    other = WorkerRecord(name="bge-m3", serves_default=False, skills=("embed",))
    transport.records = [other, MOON, MOON, WorkerRecord(model="a-folder")]
    assert await client_of(transport).models() == [
        LiveModel(None, True, 1, (), None, ("a-folder",), 0, 0),
        LiveModel("moondream2", True, 2, ("query", "caption"), 2048, ("vikhyatk/moondream2@9a7d",), 16, 6),
        LiveModel("bge-m3", False, 1, ("embed",), None, (), 0, 0),
    ]
