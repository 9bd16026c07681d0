"""The bytes in `golden/` are the wire: they never change. A new message gets a new file.

`golden/both/` is read and written, byte for byte; `golden/read/` comes from elsewhere and is only read.
"""

from pathlib import Path

import pytest

from stoop_schemas import event as events
from stoop_schemas.codec import pack, unpack_event, unpack_job, unpack_result
from stoop_schemas.event import Event, UnknownEvent
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from stoop_schemas.result import Metrics, Result
from stoop_schemas.skill import Box, CaptionLength, Grounding, Output, Point, Reasoning, Settings, Skill
from stoop_schemas.state import State
from stoop_schemas.transcript import Timestamps, Transcript, TranscriptSegment, TranscriptWord

GOLDEN = Path(__file__).with_name("golden")
ID = "0123456789abcdef0123456789abcdef-0"
IMAGE = "s3://photos/street.jpg"
TIMEOUT = Failure(FailureCode.IMAGE_TIMEOUT, "the store did not deliver in time", retryable=True)

SEGMENT = TranscriptSegment(
    id=0,
    seek=3000,
    start=30.0,
    end=32.5,
    text=" Good morning.",
    tokens=[50365, 2205, 2446, 13, 50490],
    temperature=0.0,
    avg_logprob=-0.25,
    compression_ratio=0.75,
    no_speech_prob=0.125,
)
WORDS = [TranscriptWord(" Good", 30.0, 30.5, 0.75), TranscriptWord(" morning.", 30.5, 32.5, 0.5)]
QUERY_RESULT = Result(
    id=ID,
    status=State.COMPLETED,
    skill=Skill.QUERY,
    output=Output(answer="Two."),
    finish_reason="stop",
    metrics=Metrics(
        input_tokens=740,
        output_tokens=3,
        cached_tokens=730,
        queue_time_ms=1.5,
        fetch_time_ms=8.25,
        image_time_ms=21.0,
        prefill_time_ms=12.5,
        decode_time_ms=9.0,
        ttft_ms=14.75,
    ),
    attempt=1,
    worker="host-1-4f2a",
    model="moondream2",
)

JOBS = {
    "job-query": Job(id=ID, skill=Skill.QUERY, image=IMAGE, question="How many cars?"),
    "job-query-text-only": Job(id="my-own-id", skill=Skill.QUERY, question="What is two and two?"),
    "job-caption": Job(id=ID, skill=Skill.CAPTION, image=IMAGE, length=CaptionLength.SHORT),
    "job-detect": Job(id=ID, skill=Skill.DETECT, image=IMAGE, object="car"),
    "job-point": Job(id=ID, skill=Skill.POINT, image=IMAGE, object="wheel"),
    "job-gaze": Job(id=ID, skill=Skill.GAZE, image=IMAGE, spatial_refs=[(0.4, 0.25)]),
    "job-transcribe": Job(
        id=ID,
        skill=Skill.TRANSCRIBE,
        audio="s3://talks/monday.mp3",
        language="en",
        prompt="Kestrel, stoop",
        timestamps=Timestamps.WORD,
    ),
    "job-all-fields": Job(
        id=ID,
        custom_id="line 7",
        skill=Skill.QUERY,
        image="s3://photos/street.jpg?versionId=3",
        question="Was ist hier? 🚗",
        object="car",
        length=CaptionLength.LONG,
        reasoning=True,
        spatial_refs=[(0.25, 0.5), (0.0, 0.0, 1.0, 0.75)],
        settings=Settings(temperature=0.0, top_p=0.5, max_tokens=64, max_objects=8, seed=7),
        stream=True,
        lane="bulk",
        deadline=1_795_000_000_000,
        max_attempts=5,
        idempotency_key="order/42",
        tenant="acme",
        metadata={"page": 3, "tags": ["a", None, 0.5, True], "nested": {"empty": {}}},
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "job-model": Job(id=ID, skill=Skill.CAPTION, image=IMAGE, lane="bulk", model="moondream3"),
    "job-signed": Job(
        id=ID,
        skill=Skill.CAPTION,
        image=IMAGE,
        signature="web-1:aec045bbaa011623e399762cacf59bc5419bf76ba2131df7ee89ec1bdca9b273",
    ),
}

EVENTS: dict[str, Event] = {
    "event-queued": events.QueuedEvent(id=ID, seq=0),
    "event-started": events.StartedEvent(id=ID, seq=1, attempt=1),
    "event-restarted": events.RestartedEvent(id=ID, seq=4, attempt=2),
    "event-delta": events.DeltaEvent(id=ID, seq=5, attempt=2, text='two "cars"\n'),
    "event-reasoning": events.ReasoningEvent(id=ID, seq=2, attempt=1, text="I see wheels"),
    "event-object-box": events.ObjectEvent(
        id=ID, seq=2, attempt=1, object={"x_min": 0.125, "y_min": 0.25, "x_max": 0.5, "y_max": 1.0625}
    ),
    "event-object-point": events.ObjectEvent(id=ID, seq=2, attempt=1, object={"x": 0.125, "y": 0.25}),
    "event-segment": events.SegmentEvent(id=ID, seq=2, attempt=1, segment=SEGMENT),
    "event-segment-words": events.SegmentEvent(id=ID, seq=2, attempt=1, segment=SEGMENT, words=WORDS),
    "event-finished": events.FinishedEvent(id=ID, seq=6, attempt=1, result=QUERY_RESULT),
    "event-failed": events.FailedEvent(id=ID, seq=6, attempt=3, failure=TIMEOUT),
    "event-cancelled": events.CancelledEvent(id=ID, seq=1),
    "event-expired": events.ExpiredEvent(id=ID, seq=1),
}

RESULTS = {
    "result-query": QUERY_RESULT,
    "result-query-reasoning": Result(
        id=ID,
        status=State.COMPLETED,
        skill=Skill.QUERY,
        output=Output(
            answer="Two.",
            reasoning=Reasoning("One here, one there.", [Grounding(0, 8, [(0.25, 0.5)]), Grounding(10, 19, [])]),
        ),
        finish_reason="length",
        attempt=2,
        custom_id="line 7",
        metadata={"page": 3},
    ),
    "result-caption": Result(
        id=ID, status=State.COMPLETED, skill=Skill.CAPTION, output=Output(caption="A street."), finish_reason="stop"
    ),
    "result-detect": Result(
        id=ID,
        status=State.COMPLETED,
        skill=Skill.DETECT,
        output=Output(objects=[Box(0.125, 0.25, 0.5, 1.0625)]),
        finish_reason="stop",
    ),
    "result-detect-nothing": Result(
        id=ID, status=State.COMPLETED, skill=Skill.DETECT, output=Output(objects=[]), finish_reason="stop"
    ),
    "result-point": Result(
        id=ID,
        status=State.COMPLETED,
        skill=Skill.POINT,
        output=Output(points=[Point(0.125, 0.25), Point(0.5, 0.5)]),
        finish_reason="stop",
    ),
    "result-transcribe": Result(
        id=ID,
        status=State.COMPLETED,
        skill=Skill.TRANSCRIBE,
        output=Output(transcript=Transcript("Good morning.", "en", 32.5, [SEGMENT], WORDS)),
        finish_reason="stop",
    ),
    "result-failed": Result(id=ID, status=State.FAILED, skill=Skill.CAPTION, failure=TIMEOUT, attempt=3),
    "result-failed-model": Result(
        id=ID,
        status=State.FAILED,
        skill=Skill.CAPTION,
        failure=Failure(FailureCode.UNSUPPORTED_MODEL, "this worker serves moondream2, and the job names moondream3"),
    ),
    "result-failed-unreadable": Result(
        id="1795000000000-0",
        status=State.FAILED,
        failure=Failure(FailureCode.MALFORMED, "not JSON: Input data was truncated"),
    ),
    "result-cancelled": Result(id=ID, status=State.CANCELLED, skill=Skill.POINT),
    "result-expired": Result(id=ID, status=State.EXPIRED, skill=Skill.POINT),
}

UNPACK = {"job": unpack_job, "event": unpack_event, "result": unpack_result}

# The lines of a batch file, and what a newer producer or worker might send.
FOREIGN: dict[str, Job | Event | UnknownEvent | Result] = {
    "job-moondream-query": Job(
        id="line_1", skill=Skill.QUERY, image="data:image/jpeg;base64,/9j/4AAQSkZJRg==", question="What is this?"
    ),
    "job-moondream-caption": Job(
        id="line_2", skill=Skill.CAPTION, image="https://example.com/cat.jpg", length=CaptionLength.SHORT
    ),
    "job-moondream-detect": Job(id="line_3", skill=Skill.DETECT, image="https://example.com/cat.jpg", object="cat"),
    "job-moondream-point": Job(id="line_4", skill=Skill.POINT, image="https://example.com/cat.jpg", object="ear"),
    "job-unknown-fields": JOBS["job-caption"],
    "event-unknown-fields": EVENTS["event-delta"],
    "event-unknown-type": UnknownEvent(type="progress", id=ID, seq=3, attempt=1),
    "result-unknown-fields": RESULTS["result-caption"],
}

WRITTEN: dict[str, Job | Event | Result] = {**JOBS, **EVENTS, **RESULTS}


def read(folder: str, name: str) -> bytes:
    return (GOLDEN / folder / f"{name}.json").read_bytes().removesuffix(b"\n")


def unpack(name: str, packed: bytes) -> Job | Event | UnknownEvent | Result:
    return UNPACK[name.split("-")[0]](packed)


@pytest.mark.parametrize("name", WRITTEN)
def test_reads_the_golden_message(name: str) -> None:
    assert unpack(name, read("both", name)) == WRITTEN[name]


@pytest.mark.parametrize("name", WRITTEN)
def test_writes_the_golden_message_byte_for_byte(name: str) -> None:
    assert pack(WRITTEN[name]) == read("both", name)
    assert pack(unpack(name, read("both", name))) == read("both", name)


@pytest.mark.parametrize("name", FOREIGN)
def test_messages_of_other_producers_are_read(name: str) -> None:
    assert unpack(name, read("read", name)) == FOREIGN[name]


def test_every_golden_message_is_expected() -> None:
    assert {path.stem for path in (GOLDEN / "both").iterdir()} == set(WRITTEN)
    assert {path.stem for path in (GOLDEN / "read").iterdir()} == set(FOREIGN)


def test_every_kind_of_event_is_golden() -> None:
    assert {type(event) for event in EVENTS.values()} == set(Event.__args__)


def test_every_message_names_its_version() -> None:
    assert all(b'"v":1' in read("both", name) for name in WRITTEN)
