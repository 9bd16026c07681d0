"""A recording through the executor: many requests for one job, and its ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from stoop_schemas.codec import pack, unpack_event, unpack_result
from stoop_schemas.event import SegmentEvent
from stoop_schemas.failure import FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Result
from stoop_schemas.skill import Settings, Skill
from stoop_schemas.state import State
from stoop_schemas.transcript import Timestamps
from stoop_worker.audio import AudioLimits, MelGeometry
from stoop_worker.engine.request import (
    Aborted,
    Finished,
    FinishReason,
    Output,
    Refusal,
    Refused,
    Request,
    Sampling,
    Transcribe,
    Word,
)
from stoop_worker.images import ImageLimits
from stoop_worker.jobs import outcome as outcomes
from stoop_worker.jobs.budget import Budget
from stoop_worker.jobs.executor import Executor
from stoop_worker.jobs.prepare import Budgets, ImagePreparer, Images
from stoop_worker.jobs.publisher import Identity, Publisher
from stoop_worker.jobs.recordings import Recordings
from stoop_worker.jobs.relay import Relay
from stoop_worker.metrics import Metrics
from tests.audio.sounds import encoded
from tests.jobs.pipelines.test_transcription import SPOKEN, USAGE
from tests.jobs.test_recordings import OneFileStore
from tests.support.engine import ScriptedEngine
from tests.support.recording_broker import RecordingBroker, delivery

LONG = encoded(np.zeros(65 * 16_000, dtype=np.int16), "flac", "flac")


def spoken(request: Request) -> list[Output]:
    words = (Word(" Hallo.", 0.5, 1.5, 0.75),) if isinstance(request.task, Transcribe) and request.task.words else ()
    return [Finished(request.id, FinishReason.STOP, USAGE, window=replace(SPOKEN, words=words))]


class ExecutorUnderTest:
    """An executor for a model of speech, whose store and engine follow the test's script."""

    def __init__(self, pool: ThreadPoolExecutor, answer: Callable[[Request], list[Output]] | None) -> None:
        self.store = OneFileStore(LONG)
        self.broker = RecordingBroker()
        self.engine = ScriptedEngine(answer)
        self.relay = Relay(asyncio.get_running_loop())
        self.engine.deliver = self.relay.deliver
        self.relay.attach(self.engine)
        self.publisher = Publisher(self.broker, Identity("w", "m"), interval=0)
        self.broken_off: asyncio.Future[outcomes.Outcome] = asyncio.get_running_loop().create_future()
        self.budgets = Budgets(Budget(1 << 30), Budget(1), Budget(1 << 30), largest=10)
        images = Images(self.store, ImagePreparer(pool, ImageLimits(), None), self.budgets)
        recordings = Recordings(self.store, pool, AudioLimits(), MelGeometry(80), self.budgets)
        self.executor = Executor(images, self.relay, self.publisher, Sampling(), Metrics(), recordings=recordings)

    async def run(self, job: Job, **fields: object) -> Result:
        await self.executor.execute(delivery(job.id, pack(job), **fields), self.broken_off)
        return unpack_result(self.broker.settlements[-1].result)

    @property
    def outcome(self) -> outcomes.Outcome:
        return self.broker.settlements[-1].outcome


@pytest.fixture
async def under_test() -> AsyncIterator[ExecutorUnderTest]:
    with ThreadPoolExecutor(1) as pool:
        under_test = ExecutorUnderTest(pool, spoken)
        running = asyncio.create_task(under_test.publisher.run())
        yield under_test
        running.cancel()
    assert under_test.budgets.pixels.lent == under_test.budgets.encoded.lent == 0


def job(**fields: object) -> Job:
    return Job(**{"id": "a", "skill": Skill.TRANSCRIBE, "audio": "s3://b/talk.flac", **fields})  # type: ignore[arg-type]


async def test_a_recording_becomes_one_transcript_by_many_requests(under_test: ExecutorUnderTest) -> None:
    result = await under_test.run(job(custom_id="row"), priority=1)
    assert under_test.outcome == outcomes.Completed() and result.custom_id == "row"
    assert result.output is not None and result.output.transcript is not None
    found = result.output.transcript
    assert (found.text, found.language, found.duration, found.words) == ("Hallo. Hallo. Hallo.", "de", 65.0, None)
    assert [(each.id, each.seek, each.start) for each in found.segments] == [
        (0, 0, 0.0),
        (1, 3000, 30.0),
        (2, 6000, 60.0),
    ]
    assert found.segments[0].tokens == [1, 7, 2] and found.segments[0].no_speech_prob == 0.1
    assert result.metrics.output_tokens == 15 and result.metrics.image_time_ms > 0
    assert {request.priority for request in under_test.engine.requests} == {1}
    assert under_test.engine.requests[0].sampling == Sampling(temperature=0.0, top_p=1.0, max_tokens=224)


async def test_segments_are_streamed_with_their_words(under_test: ExecutorUnderTest) -> None:
    result = await under_test.run(job(stream=True, timestamps=Timestamps.WORD))
    events = [
        event for packed in under_test.broker.events("a") if isinstance(event := unpack_event(packed), SegmentEvent)
    ]
    assert result.output is not None and result.output.transcript is not None
    assert [event.segment for event in events] == result.output.transcript.segments
    assert [word.start for event in events for word in event.words or []] == [0.5, 30.5, 60.5]
    assert [word.word for word in result.output.transcript.words or []] == [" Hallo."] * 3


async def test_the_fields_of_the_job_reach_the_engine(under_test: ExecutorUnderTest) -> None:
    fields = {"skill": Skill.TRANSLATE, "language": "de", "prompt": "Turmfalke", "timestamps": Timestamps.NONE}
    await under_test.run(job(**fields, settings=Settings(temperature=0.5, seed=7)))
    task = Transcribe(language="de", translate=True, prompt="Turmfalke", timestamps=False, words=False)
    assert under_test.engine.requests[0].task == task
    assert (under_test.engine.requests[0].sampling.temperature, under_test.engine.requests[0].sampling.seed) == (0.5, 7)


async def test_a_file_that_is_not_audio_fails_at_once_with_its_code(under_test: ExecutorUnderTest) -> None:
    under_test.store.found = b"This is a text.\n" * 100
    result = await under_test.run(job())
    assert result.failure is not None and result.failure.code is FailureCode.AUDIO_UNDECODABLE
    assert under_test.outcome == outcomes.Failed(result.failure) and under_test.engine.requests == []


async def test_a_refusal_in_a_later_window_is_the_jobs(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = lambda request: (
        spoken(request)
        if len(under_test.engine.requests) < 2
        else [Refused(request.id, Refusal.INVALID_ARGUMENT, "no such language")]
    )
    result = await under_test.run(job())
    assert result.failure is not None and result.failure.code is FailureCode.INVALID_ARGUMENT
    assert len(under_test.engine.requests) == 2


async def test_an_abort_in_the_engine_ends_the_job_as_cancelled(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = lambda request: [Aborted(request.id)]
    assert (await under_test.run(job())).status is State.CANCELLED


async def test_a_job_that_is_cancelled_runs_no_further_window(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = None
    running = asyncio.create_task(under_test.run(job()))
    await under_test.engine.submitted.wait_for(1)
    under_test.engine.deliver(spoken(under_test.engine.requests[0]))
    await under_test.engine.submitted.wait_for(2)
    under_test.broken_off.set_result(outcomes.Cancelled())
    assert (await running).status is State.CANCELLED
    assert under_test.engine.aborted == ["a"] and len(under_test.engine.requests) == 2


async def test_a_recording_past_its_deadline_expires(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = None
    result = await under_test.run(job(deadline=1), claimed_at=2)
    assert result.status is State.EXPIRED


async def test_an_engine_that_is_lost_with_a_window_sends_the_job_to_the_quarantine(
    under_test: ExecutorUnderTest,
) -> None:
    under_test.engine.answer = None
    running = asyncio.create_task(under_test.executor.execute(delivery("a", pack(job())), under_test.broken_off))
    await under_test.engine.submitted.wait_for(1)
    under_test.relay.on_engine_lost(["a"])
    await running
    assert under_test.outcome == outcomes.Crashed()


async def test_all_jobs_together_have_no_more_windows_than_the_worker_allows(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = None
    jobs = [job(id=name, parallel=True, language="de") for name in "abcd"]
    running = [
        asyncio.create_task(under_test.executor.execute(delivery(each.id, pack(each)), under_test.broken_off))
        for each in jobs
    ]
    for answered in range(12):  # three windows of each job, and eight at a time
        await under_test.engine.submitted.wait_for(min(answered + 8, 12))
        assert len(under_test.engine.requests) - answered <= 8
        under_test.engine.deliver(spoken(under_test.engine.requests[answered]))
    await asyncio.gather(*running)
    assert [each.outcome for each in under_test.broker.settlements] == [outcomes.Completed()] * 4


async def test_a_worker_without_speech_leaves_the_refusal_to_its_engine(under_test: ExecutorUnderTest) -> None:
    under_test.engine.answer = lambda request: [
        Refused(request.id, Refusal.UNSUPPORTED_SKILL, "this model cannot transcribe")
    ]
    under_test.executor = replace(under_test.executor, recordings=None)
    result = await under_test.run(job())
    assert result.failure is not None and result.failure.code is FailureCode.UNSUPPORTED_SKILL
    assert under_test.engine.requests[0].media == ()
