import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image as Pillow
from structlog.testing import capture_logs

from stoop_schemas.codec import pack, unpack_event, unpack_result
from stoop_schemas.event import DeltaEvent, ObjectEvent, StartedEvent
from stoop_schemas.failure import Failure, FailureCode, Rejected
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Box, Settings, Skill
from stoop_schemas.state import State
from stoop_worker import errors
from stoop_worker.engine.request import (
    Aborted,
    BoxFound,
    Finished,
    FinishReason,
    Output,
    Refusal,
    Refused,
    Request,
    Sampling,
    TextDelta,
    Usage,
)
from stoop_worker.images import CropGeometry, ImageLimits
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.adapters import AdapterCache
from stoop_worker.jobs.broker import Delivery
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.executor import Executor
from stoop_worker.jobs.prepare import Budgets, ImagePreparer, Images
from stoop_worker.jobs.publisher import Identity, Publisher
from stoop_worker.jobs.relay import Relay
from stoop_worker.jobs.retry import STORE_FIRST_SECONDS
from stoop_worker.metrics import Ending, Metrics
from tests.support.engine import ScriptedEngine
from tests.support.recording_broker import RecordingBroker, delivery

USAGE = Usage(735, 3, 0, prefill_time_ms=1.0, decode_time_ms=1.0, ttft_ms=1.0)


def caption(request: Request) -> list[Output]:
    return [
        TextDelta(request.id, "A "),
        TextDelta(request.id, "cat."),
        Finished(request.id, FinishReason.STOP, USAGE, text="A cat."),
    ]


class ExecutorUnderTest:
    """An executor whose store, engine and broker follow the test's script."""

    def __init__(self, answer: Callable[[Request], list[Output]] | None) -> None:
        picture = io.BytesIO()
        Pillow.new("RGB", (40, 30), "red").save(picture, "PNG")
        self.store: dict[str, bytes | Exception] = {"s3://b/red.png": picture.getvalue()}
        self.broker = RecordingBroker()
        self.engine = ScriptedEngine(answer)
        self.metrics = Metrics()
        self.relay = relay = Relay(asyncio.get_running_loop())
        self.engine.deliver = relay.deliver
        relay.attach(self.engine)
        self.publisher = Publisher(self.broker, Identity("w", "m"), interval=0)
        self.broken_off: asyncio.Future[outcomes.Outcome] = asyncio.get_running_loop().create_future()
        self.pool = ThreadPoolExecutor(1)
        preparer = ImagePreparer(self.pool, ImageLimits(), CropGeometry())
        self.budgets = Budgets(Budget(100), Budget(1), Budget(1_000_000), largest=10)
        self.executor = Executor(Images(self, preparer, self.budgets), relay, self.publisher, Sampling(), self.metrics)

    async def fetch(self, image_uri: str, tenant: str | None = None, priority: int = 0) -> bytes:
        found = self.store.get(image_uri, errors.ImageNotFound(f"nothing at {image_uri}"))
        if isinstance(found, Exception):
            raise found
        return found

    async def execute(self, job: Job | bytes, **fields: object) -> None:
        packed = job if isinstance(job, bytes) else pack(job)
        given = job.id if isinstance(job, Job) else "17-0"
        await self.executor.execute(delivery(given, packed, **fields), self.broken_off)

    async def run(self, job: Job | bytes, **fields: object) -> Result:
        await self.execute(job, **fields)
        return unpack_result(self.broker.settlements[-1].result)

    @property
    def outcome(self) -> outcomes.Outcome:
        return self.broker.settlements[-1].outcome


@pytest.fixture
async def under_test() -> AsyncIterator[ExecutorUnderTest]:
    under_test = ExecutorUnderTest(caption)
    running = asyncio.create_task(under_test.publisher.run())
    yield under_test
    running.cancel()
    under_test.pool.shutdown()


def job(**fields: object) -> Job:
    return Job(**{"id": "a", "skill": Skill.CAPTION, "image": "s3://b/red.png", **fields})  # type: ignore[arg-type]


async def test_a_job_is_fetched_cropped_run_and_answered(under_test: ExecutorUnderTest) -> None:
    result = await under_test.run(job(custom_id="row", metadata={"k": 1}))
    assert under_test.outcome == outcomes.Completed()
    assert result.output is not None
    assert result.output.caption == "A cat."
    assert (result.status, result.custom_id, result.metadata) == (State.COMPLETED, "row", {"k": 1})
    assert result.metrics.queue_time_ms == 250
    (crops,) = under_test.engine.requests[0].media
    assert crops.pixels.shape == (2, 378, 378, 3)


async def test_tokens_are_published_only_for_jobs_with_a_stream(under_test: ExecutorUnderTest) -> None:
    await under_test.run(job(id="quiet"))
    await under_test.run(job(id="loud", stream=True))
    quiet, loud = ([unpack_event(packed) for packed in under_test.broker.events(name)] for name in ("quiet", "loud"))
    assert not any(isinstance(event, DeltaEvent) for event in quiet)
    assert isinstance(loud[0], StartedEvent)
    assert "".join(event.text for event in loud if isinstance(event, DeltaEvent)) == "A cat."


async def test_boxes_are_streamed_and_kept(under_test: ExecutorUnderTest) -> None:
    box = BoxFound("a", 0.1, 0.2, 0.3, 0.4)
    under_test.engine.answer = lambda request: [box, Finished("a", FinishReason.STOP, USAGE, boxes=(box,))]
    result = await under_test.run(job(skill=Skill.DETECT, object="cat", stream=True))
    assert result.output is not None
    assert result.output.objects == [Box(0.1, 0.2, 0.3, 0.4)]
    places = [
        event for packed in under_test.broker.events("a") if isinstance(event := unpack_event(packed), ObjectEvent)
    ]
    assert [event.object for event in places] == [{"x_min": 0.1, "y_min": 0.2, "x_max": 0.3, "y_max": 0.4}]


async def test_the_priority_goes_along_to_the_engine(under_test: ExecutorUnderTest) -> None:
    await under_test.run(job(), priority=1)
    await under_test.run(job(id="b", skill=Skill.QUERY, image=None, question="why?"), priority=2)
    assert [request.priority for request in under_test.engine.requests] == [1, 2]


async def test_a_query_without_an_image_fetches_nothing(under_test: ExecutorUnderTest) -> None:
    await under_test.run(job(skill=Skill.QUERY, image=None, question="why?"))
    assert under_test.engine.requests[0].media == ()


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        (b"{", FailureCode.MALFORMED),
        (b"", FailureCode.MALFORMED),
        (b'{"id":"a","skill":"fly"}', FailureCode.UNSUPPORTED_SKILL),
        (b'{"id":"a","skill":"caption"}', FailureCode.MALFORMED),
        (b'{"id":"a","skill":"caption","image":"s3://b/k","settings":{"top_p":2}}', FailureCode.INVALID_ARGUMENT),
    ],
)
async def test_a_malformed_job_becomes_a_dead_letter_with_a_failed_result(
    under_test: ExecutorUnderTest, packed: bytes, code: FailureCode
) -> None:
    result = await under_test.run(packed)
    assert isinstance(under_test.outcome, outcomes.Dead)
    assert (result.id, result.status) == ("17-0", State.FAILED)
    assert result.failure is not None
    assert result.failure.code is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ImageNotFound("x"), FailureCode.IMAGE_NOT_FOUND),
        (errors.ImageForbidden("x"), FailureCode.IMAGE_FORBIDDEN),
        (errors.ImageTooLarge("x"), FailureCode.IMAGE_TOO_LARGE),
        (errors.ImageAddressInvalid("x"), FailureCode.INVALID_ARGUMENT),
    ],
)
async def test_a_fault_of_the_jobs_own_fails_at_once(
    under_test: ExecutorUnderTest, error: Exception, code: FailureCode
) -> None:
    under_test.store["s3://b/red.png"] = error
    result = await under_test.run(job())
    assert result.failure is not None
    assert result.failure.code is code
    assert under_test.outcome == outcomes.Failed(result.failure)
    assert under_test.engine.requests == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ImageTimeout("x"), FailureCode.IMAGE_TIMEOUT),
        (errors.StorageUnavailable("x"), FailureCode.STORAGE_UNAVAILABLE),
        (RuntimeError("secret"), FailureCode.INTERNAL),
        (TimeoutError("secret"), FailureCode.INTERNAL),
    ],
)
async def test_a_temporary_failure_is_retried_and_then_becomes_a_dead_letter(
    under_test: ExecutorUnderTest, error: Exception, code: FailureCode
) -> None:
    under_test.store["s3://b/red.png"] = error
    await under_test.execute(job(), attempt=1)
    assert isinstance(under_test.outcome, outcomes.Retry)
    assert under_test.outcome.failure.code is code
    assert 0 < under_test.outcome.delay <= STORE_FIRST_SECONDS
    assert under_test.broker.settlements[-1].result == b"", "a run that does not end the job has no result"
    result = await under_test.run(job(), attempt=3)
    assert isinstance(under_test.outcome, outcomes.Dead)
    assert result.failure == under_test.outcome.failure
    assert result.failure.code is FailureCode.ATTEMPTS_EXHAUSTED
    assert code.value in result.failure.message
    assert "secret" not in result.failure.message


async def test_a_job_may_set_its_attempts_and_crashes_do_not_count(under_test: ExecutorUnderTest) -> None:
    under_test.store["s3://b/red.png"] = errors.StorageUnavailable("x")
    await under_test.execute(job(max_attempts=1))
    assert isinstance(under_test.outcome, outcomes.Dead)
    await under_test.execute(job(max_attempts=5), attempt=4)
    assert isinstance(under_test.outcome, outcomes.Retry)
    await under_test.execute(job(), attempt=4, crashes=2)
    assert isinstance(under_test.outcome, outcomes.Retry)


async def test_bytes_that_are_not_an_image_are_undecodable(under_test: ExecutorUnderTest) -> None:
    under_test.store["s3://b/red.png"] = b"<svg/>"
    result = await under_test.run(job())
    assert result.failure is not None
    assert result.failure.code is FailureCode.IMAGE_UNDECODABLE


async def test_a_refusal_of_the_engine_fails_the_job_with_its_reason(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = lambda request: [Refused(request.id, Refusal.CONTEXT_OVERFLOW, "too long")]
    result = await under_test.run(job())
    assert result.failure is not None
    assert (result.failure.code, result.failure.message) == (FailureCode.CONTEXT_OVERFLOW, "too long")


async def test_an_aborted_request_is_cancelled(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = lambda request: [Aborted(request.id)]
    assert (await under_test.run(job())).status is State.CANCELLED


async def test_a_job_that_no_engine_takes_goes_back_untouched(under_test: ExecutorUnderTest) -> None:
    under_test.engine.alive = False
    await under_test.execute(job())
    assert under_test.outcome == outcomes.Released()


async def test_a_job_in_an_engine_that_crashes_is_under_suspicion(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = None
    run = asyncio.create_task(under_test.execute(job()))
    await under_test.engine.submitted.wait_for(1)
    under_test.relay.on_engine_lost(["a"])
    await run
    assert under_test.outcome == outcomes.Crashed()


@pytest.mark.parametrize(
    ("verdict", "state"), [(outcomes.Expired(), State.EXPIRED), (outcomes.Cancelled(), State.CANCELLED)]
)
async def test_a_job_with_a_verdict_from_the_queue_does_not_run(
    under_test: ExecutorUnderTest, verdict: outcomes.Outcome, state: State
) -> None:
    result = await under_test.run(job(), verdict=verdict)
    assert (result.status, under_test.outcome) == (state, verdict)
    assert under_test.engine.requests == []
    assert len(under_test.broker.events("a")) == 1  # never started


async def test_a_job_that_crashed_an_engine_alone_is_not_run_again(under_test: ExecutorUnderTest) -> None:
    failure = Failure.of(FailureCode.WORKER_LOST, "crashed alone")
    result = await under_test.run(job(), verdict=outcomes.Dead(failure))
    assert (result.status, result.failure, under_test.outcome) == (State.FAILED, failure, outcomes.Dead(failure))
    assert under_test.engine.requests == []


@pytest.mark.parametrize("outcome", [outcomes.Released(), outcomes.Cancelled()])
async def test_an_interrupted_run_is_aborted_and_settled(
    under_test: ExecutorUnderTest, outcome: outcomes.Outcome
) -> None:
    under_test.engine.answer = None
    run = asyncio.create_task(under_test.execute(job(custom_id="row")))
    await under_test.engine.submitted.wait_for(1)
    under_test.broken_off.set_result(outcome)
    await run
    assert under_test.outcome == outcome
    assert under_test.engine.aborted == ["a"]
    packed = under_test.broker.settlements[-1].result
    if isinstance(outcome, outcomes.Cancelled):
        assert (unpack_result(packed).status, unpack_result(packed).custom_id) == (State.CANCELLED, "row")
    else:
        assert packed == b""


async def test_an_aborted_job_does_not_wait_for_its_image(under_test: ExecutorUnderTest) -> None:
    go_on = threading.Event()
    under_test.pool.submit(go_on.wait, 60)  # the only thread is at another image
    executing = asyncio.create_task(under_test.execute(job()))
    under_test.broken_off.set_result(outcomes.Cancelled())
    await executing
    assert under_test.outcome == outcomes.Cancelled()
    go_on.set()


async def test_a_run_is_aborted_at_its_deadline_by_the_clock_of_redis(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = None
    result = await under_test.run(job(deadline=5_001_300), claimed_at=5_001_250)  # in 1970, but in 50 ms for Redis
    assert (result.status, under_test.outcome) == (State.EXPIRED, outcomes.Expired())
    assert under_test.engine.aborted == ["a"]


async def test_a_deadline_that_is_kept_changes_nothing(under_test: ExecutorUnderTest) -> None:
    await under_test.run(job(deadline=5_061_250), claimed_at=5_001_250)
    assert under_test.outcome == outcomes.Completed()


async def test_a_job_that_names_this_model_or_none_is_run(under_test: ExecutorUnderTest) -> None:
    under_test.executor = replace(under_test.executor, model="moondream2")
    for model in ("moondream2", None):
        job = Job(id=f"a-{model}", skill=Skill.CAPTION, image="s3://b/red.png", model=model)
        assert (await under_test.run(job)).status is State.COMPLETED


@pytest.mark.parametrize("served", ["moondream2", None])
async def test_a_job_that_names_another_model_is_refused_at_once(
    under_test: ExecutorUnderTest, served: str | None
) -> None:
    under_test.executor = replace(under_test.executor, model=served)
    result = await under_test.run(Job(id="a", skill=Skill.CAPTION, image="s3://b/red.png", model="qwen3-8b"))
    assert isinstance(under_test.outcome, outcomes.Failed)
    assert result.failure is not None and result.failure.code is FailureCode.UNSUPPORTED_MODEL
    assert "qwen3-8b:interactive" in result.failure.message, "it says where the job belongs"


async def test_a_job_of_another_model_that_was_cancelled_is_cancelled(under_test: ExecutorUnderTest) -> None:
    job = Job(id="a", skill=Skill.CAPTION, image="s3://b/red.png", model="qwen3-8b")
    assert (await under_test.run(job, verdict=outcomes.Cancelled())).status is State.CANCELLED


class Adapters:
    """A source that has one adapter."""

    async def fetch(self, adapter: str) -> bytes:
        if adapter != "cats":
            raise Rejected(FailureCode.INVALID_ARGUMENT, f"there is no adapter {adapter!r}")
        return b"weights"


async def test_a_job_s_adapter_is_in_the_folder_before_the_engine_sees_the_job(
    under_test: ExecutorUnderTest, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def look(request: Request) -> list[Output]:
        seen.append((tmp_path / "cats.safetensors").exists())
        return caption(request)

    under_test.engine.answer = look
    cache = AdapterCache(Adapters(), tmp_path, max_bytes=100, resident=1)
    under_test.executor = replace(under_test.executor, adapters=cache)
    await under_test.run(job(settings=Settings(adapter="cats")))
    assert under_test.outcome == outcomes.Completed() and seen == [True]
    assert under_test.engine.requests[0].adapter == "cats"
    result = await under_test.run(job(id="b", settings=Settings(adapter="dogs")))
    assert result.failure is not None and result.failure.code is FailureCode.INVALID_ARGUMENT
    assert len(under_test.engine.requests) == 1
    await under_test.run(job(id="c"))
    assert under_test.outcome == outcomes.Completed()


class BrokenSpans:
    """Tracing with a defect, before or after its decision to keep a trace."""

    def __init__(self, *, decides: bool) -> None:
        self.decides = decides

    def may_keep(self, delivery: Delivery) -> bool:
        if not self.decides:
            raise RuntimeError("no decision")
        return True

    async def record(self, delivery: Delivery, ending: Ending, ran: float, read: Callable[[], Job | None]) -> None:
        raise RuntimeError("no span")


@pytest.mark.parametrize("decides", [False, True])
async def test_a_defect_of_tracing_is_logged_as_that_and_leaves_the_settlement_alone(
    under_test: ExecutorUnderTest, *, decides: bool
) -> None:
    under_test.executor = replace(under_test.executor, spans=BrokenSpans(decides=decides))
    with capture_logs() as logs:
        result = await under_test.run(job())
    assert result.status == State.COMPLETED
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "a settled delivery could not be traced"
    ]
