"""Recordings through the clients, on a queue that a test scripts."""

import base64
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoop import AsyncClient, AudioUnreadable, Client, InvalidJob, JobRestarted
from stoop.client.segment_stream import SegmentStream
from stoop_schemas.event import Event, FinishedEvent, RestartedEvent, SegmentEvent, StartedEvent
from stoop_schemas.job import Job
from stoop_schemas.skill import Output, Skill
from stoop_schemas.transcript import Timestamps, Transcript, TranscriptSegment, TranscriptWord
from tests.producer.scripted import ScriptedTransport, completed

SEGMENTS = [
    TranscriptSegment(n, 3000 * n, 30.0 * n, 30.0 * n + 2, f" Part {n}.", [n], 0.0, -0.5, 1.0, 0.0) for n in range(3)
]
TRANSCRIPT = Transcript("Part 0. Part 1. Part 2.", "en", 62.0, SEGMENTS)
WORDS = [TranscriptWord(" Part", 0.0, 1.0, 0.5)]


def segment(number: int, seq: int = 0, words: list[TranscriptWord] | None = None) -> SegmentEvent:
    return SegmentEvent(id="a", seq=seq, attempt=1, segment=SEGMENTS[number], words=words)


def finished(job_id: str = "a", seq: int = 0) -> FinishedEvent:
    result = completed(job_id, Skill.TRANSCRIBE, Output(transcript=TRANSCRIPT))
    return FinishedEvent(id=job_id, seq=seq, attempt=1, result=result)


def spoken(job: Job) -> list[Event]:
    events: list[Event] = [StartedEvent(id=job.id, seq=0, attempt=1)]
    for number in range(3 if job.stream else 0):
        events.append(msgspec.structs.replace(segment(number), id=job.id, seq=len(events)))
    return [*events, finished(job.id, len(events))]


async def heard(*events: Event) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    async def source() -> AsyncGenerator[Event, None]:
        for event in events:
            yield event

    stream = SegmentStream("a", source())
    return [each async for each in stream], stream.transcript


async def test_segments_come_one_by_one_and_the_transcript_at_the_end() -> None:
    segments, transcript = await heard(segment(0, words=WORDS), segment(1), segment(2), finished())
    assert [each["text"] for each in segments] == [" Part 0.", " Part 1.", " Part 2."]
    assert segments[0]["words"] == msgspec.to_builtins(WORDS) and "words" not in segments[1]
    assert transcript["text"] == TRANSCRIPT.text and transcript["duration"] == 62.0


async def test_a_second_run_with_the_same_segments_continues_the_first() -> None:
    again = RestartedEvent(id="a", seq=0, attempt=2)
    segments, _ = await heard(segment(0), segment(1), again, segment(0), segment(1), segment(2), finished())
    assert [each["id"] for each in segments] == [0, 1, 2]


async def test_a_second_run_may_find_slightly_other_probabilities() -> None:
    other = msgspec.structs.replace(SEGMENTS[0], avg_logprob=-0.5000001)
    again: list[Event] = [
        RestartedEvent(id="a", seq=0, attempt=2),
        msgspec.structs.replace(segment(0), segment=other),
    ]
    segments, _ = await heard(segment(0), *again, segment(1), segment(2), finished())
    assert [each["id"] for each in segments] == [0, 1, 2]


async def test_a_second_run_with_fewer_segments_is_reported() -> None:
    with pytest.raises(JobRestarted):
        await heard(segment(0), segment(1), RestartedEvent(id="a", seq=0, attempt=2), segment(0), finished())


async def test_a_second_run_with_other_segments_is_reported() -> None:
    with pytest.raises(JobRestarted):
        await heard(segment(0), RestartedEvent(id="a", seq=0, attempt=2), segment(1), finished())


async def test_the_async_client_transcribes_and_streams() -> None:
    transport = ScriptedTransport(spoken)
    async with AsyncClient(transport=transport) as client:
        answer = await client.transcribe("s3://talks/a.mp3", language="en", prompt="Kestrel", timestamps="word")
        assert answer["transcript"]["text"] == TRANSCRIPT.text
        streamed = (await client.translate("https://example.com/a.mp3", stream=True))["segments"]
        assert [each["id"] async for each in streamed] == [0, 1, 2]
    plain, asked = transport.submitted
    assert (plain.audio, plain.language, plain.prompt) == ("s3://talks/a.mp3", "en", "Kestrel")
    assert (plain.timestamps, plain.stream, asked.skill, asked.stream) == (Timestamps.WORD, False, "translate", True)


def test_the_blocking_client_has_the_same_methods() -> None:
    with Client(transport=ScriptedTransport(spoken)) as client:
        assert client.transcribe("s3://talks/a.mp3")["transcript"]["language"] == "en"
        assert [each["id"] for each in client.transcribe("s3://talks/a.mp3", stream=True)["segments"]] == [0, 1, 2]


async def test_a_job_that_cannot_be_is_refused_before_it_is_submitted(tmp_path: Path) -> None:
    transport = ScriptedTransport(spoken)
    async with AsyncClient(transport=transport, allowed_buckets="talks") as client:
        for fault, fields in (
            ("language must be", {"language": "English"}),
            ("Invalid enum value", {"timestamps": "letters"}),
        ):
            with pytest.raises(InvalidJob, match=fault):
                await client.transcribe("s3://talks/a.mp3", **fields)  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="the audio's bucket or prefix is not allowed"):
            await client.transcribe("s3://other/a.mp3")
        with pytest.raises(AudioUnreadable, match="no worker reads ftp:// addresses"):
            await client.transcribe("ftp://host/talk.mp3")
        with pytest.raises(AudioUnreadable, match="there is no file"):
            await client.transcribe(tmp_path / "none.mp3")
        with pytest.raises(AudioUnreadable, match="is a folder"):
            await client.transcribe(str(tmp_path))
        with pytest.raises(InvalidJob, match="audio goes with transcribe and translate"):
            await client.run("caption", "s3://talks/a.png", audio="s3://talks/a.mp3")
    assert transport.submitted == []


async def test_a_short_recording_may_travel_in_the_job() -> None:
    transport = ScriptedTransport(spoken)
    address = "data:audio/wav;base64," + base64.b64encode(b"RIFF").decode()
    async with AsyncClient(transport=transport) as client:
        await client.transcribe(address)
    assert transport.submitted[0].audio == address
