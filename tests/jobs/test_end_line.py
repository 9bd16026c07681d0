"""The log of a job: its id on every line, and at its end one line with the times of its stages."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.result import Metrics as Times
from stoop_schemas.result import Result
from stoop_schemas.skill import Output, Skill
from stoop_schemas.state import State
from stoop_worker.engine.request import Request
from stoop_worker.jobs.end_line import log_end
from stoop_worker.logs import configure_logs
from stoop_worker.metrics import Ending
from tests.jobs.test_executor import ExecutorUnderTest, job
from tests.support.recording_broker import delivery

TIMES = Times(output_tokens=3, queue_time_ms=250, fetch_time_ms=20.04, image_time_ms=30, decode_time_ms=8)
DONE = Result(id="a", status=State.COMPLETED, skill=Skill.CAPTION, output=Output(caption="planted"), metrics=TIMES)


def line(ending: Ending, **fields: object) -> dict[str, Any]:
    with capture_logs() as logs:
        log_end(delivery("a", b"planted", **fields), ending)
    [written] = logs
    return dict(written)


def test_the_end_of_an_answer_has_the_times_of_its_stages_and_no_text() -> None:
    written = line(Ending("interactive", "completed", DONE, 0.3123), attempt=2)
    assert written == {
        "event": "job settled",
        "log_level": "info",
        "job": "a",
        "lane": "interactive",
        "skill": "caption",
        "outcome": "completed",
        "code": None,
        "attempt": 2,
        "total_ms": 312.3,
        "queue_ms": 250,
        "fetch_ms": 20.0,
        "image_ms": 30,
        "prefill_ms": 0,
        "decode_ms": 8,
        "input_tokens": 0,
        "cached_tokens": 0,
        "output_tokens": 3,
    }


def test_the_end_of_a_failure_has_its_code_and_its_wait() -> None:
    failure = Failure.of(FailureCode.IMAGE_NOT_FOUND, "planted")
    failed = Result(id="a", status=State.FAILED, skill=Skill.CAPTION, failure=failure)
    written = line(Ending("bulk", "failed", failed, 0.5))
    assert (written["code"], written["queue_ms"], written["total_ms"]) == ("image_not_found", 250, 500)
    assert "planted" not in str(written)
    lost = line(Ending("bulk", "completed", DONE, 0.5, ours=False))
    assert lost["event"] == "job was no longer ours"


async def test_every_line_of_a_job_has_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    def defect(_request: Request) -> Any:
        raise ZeroDivisionError

    configure_logs("info", "json")
    try:
        await asyncio.gather(*(asyncio.create_task(run(name, defect)) for name in ("first", "second")))
        structlog.get_logger("test").info("of no job")
    finally:
        structlog.reset_defaults()
    lines = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert "job" not in lines.pop()
    by_job = {name: [one["event"] for one in lines if one["job"] == name] for name in ("first", "second")}
    assert by_job == {name: ["job met a defect", "job settled"] for name in ("first", "second")}


async def run(name: str, answer: Callable[[Request], Any]) -> None:
    under_test = ExecutorUnderTest(answer)
    publishing = asyncio.create_task(under_test.publisher.run())
    try:
        await under_test.execute(job(id=name))
    finally:
        publishing.cancel()
        under_test.pool.shutdown()
