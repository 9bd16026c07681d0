"""The spans that a worker makes of its deliveries."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler

from stoop_schemas.chat import ImagePart, ImageURL, Message, Role, TextPart
from stoop_schemas.codec import pack, unpack_job
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Output, Settings
from stoop_schemas.state import State
from stoop_schemas.tracing import Export
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.publisher import Identity
from stoop_worker.jobs.redis.history import LostAttempt
from stoop_worker.jobs.spans.job_spans import JobSpans
from stoop_worker.jobs.spans.stages import stages_of
from stoop_worker.metrics import Ending
from tests.support.recording_broker import delivery

MS = 1_000_000
SPENT = Metrics(2, 3, 1, ttft_ms=20, prefill_time_ms=15, decode_time_ms=30, image_time_ms=10, fetch_time_ms=5)
DONE = Result(id="a", status=State.COMPLETED, skill="query", output=Output(answer="planted answer"), metrics=SPENT)
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def job(**fields: Any) -> Job:
    settings = Settings(temperature=0.5)
    return Job(**{"id": "a", "skill": "query", "question": "planted question", "settings": settings, **fields})


class SpansUnderTest:
    """A worker's spans, in memory; it knows of these lost attempts."""

    def __init__(self, *lost: LostAttempt, sampler: Sampler | None = None, content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        export = Export(self.provider, SimpleSpanProcessor(self.exporter))
        self.lost = list(lost)
        self.spans = JobSpans(export, Identity("w-2", "moondream2"), self, content=content)

    async def lost_before(self, delivery: Delivery) -> list[LostAttempt]:
        return [one for one in self.lost if one.attempt < delivery.attempt]

    async def record(self, given: Job, ending: Ending, ran: float = 0.1, **fields: Any) -> None:
        packed = pack(given)
        arrived = delivery(given.id, packed, **fields)
        await self.spans.record(arrived, ending, ran, lambda: unpack_job(packed))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name.split()[0] == name]

    def __str__(self) -> str:
        return "".join(span.to_json() for span in self.exporter.get_finished_spans())


@pytest.fixture
def under_test() -> Iterator[SpansUnderTest]:
    yield SpansUnderTest()


def ended(outcome: str = "completed", result: Result | None = DONE, **fields: Any) -> Ending:
    return Ending("interactive", outcome, result, 0.4, **fields)


async def test_an_answers_spans_nest_and_have_no_text(under_test: SpansUnderTest) -> None:
    await under_test.record(job(traceparent=TRACEPARENT), ended())
    [process], [queue], [generate] = (
        under_test.named("process"),
        under_test.named("queue"),
        under_test.named("generate_content"),
    )
    assert process.parent is not None and queue.parent is not None and process.context is not None
    assert {process.parent.span_id, queue.parent.span_id} == {int("b" * 16, 16)}
    assert (queue.start_time, queue.end_time) == (1000 * MS, 1250 * MS)
    assert (process.start_time, process.end_time) == (1250 * MS, 1400 * MS)
    assert generate.name == "generate_content moondream2"
    assert generate.attributes is not None
    assert generate.attributes["gen_ai.request.temperature"] == 0.5
    assert [generate.attributes[f"gen_ai.usage.{kind}_tokens"] for kind in ("input", "output")] == [2, 3]
    for stage, (start, end) in {"fetch": (1285, 1290), "image": (1290, 1300), "settle": (1350, 1400)}.items():
        [span] = under_test.named(stage)
        assert span.parent is not None and span.parent.span_id == process.context.span_id
        assert (span.start_time, span.end_time) == (start * MS, end * MS), stage
    for stage, (start, end) in {"prefill": (1305, 1320), "decode": (1320, 1350)}.items():
        [span] = under_test.named(stage)
        assert span.parent is not None and generate.context is not None
        assert span.parent.span_id == generate.context.span_id
        assert (span.start_time, span.end_time) == (start * MS, end * MS), stage
    assert "planted" not in str(under_test)


async def test_content_is_in_the_spans_only_if_it_is_asked_for() -> None:
    under_test = SpansUnderTest(content=True)
    await under_test.record(job(traceparent=TRACEPARENT), ended())
    [generate] = under_test.named("generate_content")
    assert generate.attributes is not None
    [asked] = json.loads(str(generate.attributes["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "planted question"}]}
    assert "planted answer" in str(generate.attributes["gen_ai.output.messages"])


INLINE = f"data:image/png;base64,{'A' * 200_000}"
HEARD = f"data:audio/wav;base64,{'A' * 200_000}"


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"image": INLINE}, ["data:image/png (200022 characters)", "planted question"]),
        ({"image": "s3://b/cat.png"}, ["s3://b/cat.png", "planted question"]),
        ({"skill": "transcribe", "question": None, "audio": HEARD}, ["data:audio/wav (200022 characters)"]),
        (
            {
                "skill": "chat",
                "question": None,
                "messages": [
                    Message(Role.SYSTEM, "planted rule"),
                    Message(Role.USER, [TextPart("planted text"), ImagePart(ImageURL(INLINE))]),
                ],
            },
            ["planted rule", "planted text", "data:image/png (200022 characters)"],
        ),
    ],
)
async def test_content_has_the_type_and_size_of_a_file_inside_the_job(fields: dict[str, Any], shown: list[str]) -> None:
    under_test = SpansUnderTest(content=True)
    await under_test.record(job(**fields), ended())
    [generate] = [span for span in under_test.exporter.get_finished_spans() if "moondream2" in span.name]
    assert generate.attributes is not None
    asked = str(generate.attributes["gen_ai.input.messages"])
    assert json.loads(asked)
    assert all(text in asked for text in shown)
    assert "AAAA" not in str(under_test)


async def test_content_of_any_length_is_cut_at_a_bound() -> None:
    under_test = SpansUnderTest(content=True)
    talk = [Message(Role.USER, "planted " + "é" * 50_000)]
    result = Result(id="a", status=State.COMPLETED, output=Output(answer="told " + "é" * 50_000), metrics=SPENT)
    await under_test.record(job(skill="chat", question=None, messages=talk), ended(result=result))
    [generate] = under_test.named("chat")
    assert generate.attributes is not None
    for name, text in {"input": "planted é", "output": "told é"}.items():
        value = str(generate.attributes[f"gen_ai.{name}.messages"])
        assert text in value and value.endswith("bytes)")
        assert 8000 < len(value.encode()) <= 8192


async def test_a_message_without_a_bottom_is_traced_as_the_dead_letter_that_it_is(under_test: SpansUnderTest) -> None:
    packed = b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"
    failed = Result(id="a", status=State.FAILED, failure=Failure.of(FailureCode.MALFORMED, "planted message"))
    await under_test.spans.record(delivery("a", packed), ended("dead", failed), 0.1, lambda: None)
    [process] = under_test.named("process")
    assert process.attributes is not None
    assert process.attributes["error.type"] == "malformed" and not process.status.is_ok


async def test_a_retry_is_a_failed_attempt_of_the_same_trace(under_test: SpansUnderTest) -> None:
    failure = Failure.of(FailureCode.IMAGE_TIMEOUT, "planted message")
    failed = Result(id="a", status=State.FAILED, skill="query", failure=failure)
    await under_test.record(job(traceparent=TRACEPARENT), ended("retry", failed))
    await under_test.record(job(traceparent=TRACEPARENT), ended(), attempt=2, claimed_at=3000)
    first, second = under_test.named("process")
    assert first.attributes is not None and second.attributes is not None
    assert first.attributes["error.type"] == "image_timeout" and not first.status.is_ok
    assert [span.attributes["stoop.attempt"] for span in (first, second) if span.attributes] == [1, 2]
    assert len(under_test.named("queue")) == 1
    assert "planted" not in str(under_test)


async def test_lost_attempts_are_recorded_once_by_the_attempt_that_settles() -> None:
    lost = [LostAttempt(2, "w-1", 2000, 2500), LostAttempt(1, "w-0", 1250, 1900)]
    under_test = SpansUnderTest(*lost)
    given = {"attempt": 3, "crashes": 2, "claimed_at": 2600}
    await under_test.record(job(traceparent=TRACEPARENT), ended("released", None), **given)
    await under_test.record(job(traceparent=TRACEPARENT), ended("crashed", None), **given)
    await under_test.record(job(traceparent=TRACEPARENT), ended(ours=False), **given)
    [released] = under_test.named("process")
    assert released.attributes is not None and released.attributes["stoop.outcome"] == "released"
    under_test.exporter.clear()
    await under_test.record(job(traceparent=TRACEPARENT), ended(), **given)
    attempts = [span.attributes for span in under_test.named("process") if span.attributes]
    assert [one["stoop.attempt"] for one in attempts] == [1, 2, 3]
    assert [one["stoop.worker"] for one in attempts] == ["w-0", "w-1", "w-2"]
    [queue] = under_test.named("queue")
    assert queue.end_time == 1250 * MS


async def test_the_attempts_of_a_job_without_a_context_share_a_trace() -> None:
    one, other = SpansUnderTest(), SpansUnderTest()
    await one.record(job(), ended("retry", None))
    await other.record(job(traceparent="not a traceparent"), ended(), attempt=2)
    await other.record(job(id="b"), ended())
    traces = [
        span.context.trace_id for under_test in (one, other) for span in under_test.named("process") if span.context
    ]
    assert len(traces) == 3 and len(set(traces)) == 2 and traces[0] == traces[1]


async def test_attributes_keep_to_the_limits_of_the_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "10")
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5")
    under_test = SpansUnderTest(content=True)
    await under_test.record(job(), ended())
    for span in under_test.exporter.get_finished_spans():
        assert len(span.attributes or {}) <= 10
        assert all(len(value) <= 5 for value in (span.attributes or {}).values() if isinstance(value, str))
    [generate] = under_test.named("generate_content")
    assert generate.dropped_attributes > 0


@pytest.mark.parametrize("traceparent", [None, f"00-{'a' * 32}-{'b' * 16}-00"])
async def test_an_unsampled_job_costs_no_parsing_and_no_span(traceparent: str | None) -> None:
    under_test = SpansUnderTest(sampler=ParentBased(ALWAYS_OFF))

    def parse() -> Job:
        raise AssertionError

    packed = pack(job(traceparent=traceparent))
    await under_test.spans.record(delivery("a", packed), ended(), 0.1, parse)
    assert under_test.exporter.get_finished_spans() == ()


def test_sums_of_times_are_cut_at_the_claim() -> None:
    spent = Metrics(fetch_time_ms=500, image_time_ms=10, ttft_ms=20, prefill_time_ms=400, decode_time_ms=30)
    stages = stages_of(spent, 1000 * MS, 1100 * MS)
    assert [stage.name for stage in stages] == ["fetch", "image", "generate", "prefill", "decode"]
    assert stages[0].start == 1000 * MS and all(stage.start <= stage.end <= 1100 * MS for stage in stages)
    assert stages_of(Metrics(), 1000 * MS, 1000 * MS) == []
