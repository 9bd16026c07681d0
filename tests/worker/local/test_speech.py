"""Recordings through the engine without a queue, on a tiny random Whisper."""

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoop_schemas.failure import FailureCode, Rejected
from stoop_worker.errors import AudioAddressInvalid, AudioNotFound, AudioUndecodable
from stoop_worker.local import LocalEngine
from tests.audio.sounds import encoded
from tests.support.tiny_model import write_checkpoint
from tests.support.tiny_whisper import write_whisper

NOISE = (3000 * np.random.default_rng(0).normal(size=35 * 16_000)).astype(np.int16)
TALK = encoded(NOISE, "flac", "flac")
ASKED = {"language": "en", "settings": {"temperature": 0.0, "max_tokens": 12}}


def spoken(segments: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return segments without their log-probabilities, which differ a little from one run to another."""
    return [(each["id"], each["start"], each["end"], each["text"]) for each in segments]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_whisper(tmp_path_factory.mktemp("local") / "whisper").folder


@pytest.fixture
async def engine(folder: Path) -> AsyncIterator[LocalEngine]:
    async with LocalEngine(folder, device="cpu", max_batch=4, threads=1) as opened:
        yield opened


async def test_a_recording_is_written_down_whole_or_segment_by_segment(engine: LocalEngine, tmp_path: Path) -> None:
    (tmp_path / "talk.flac").write_bytes(TALK)
    whole = (await engine.transcribe(tmp_path / "talk.flac", timestamps="word", **ASKED))["transcript"]
    assert (whole["language"], whole["duration"]) == ("en", 35.0) and whole["segments"]
    stream = (await engine.transcribe(TALK, stream=True, timestamps="word", **ASKED))["segments"]
    segments = [segment async for segment in stream]
    words = [word for segment in segments for word in segment["words"]]
    assert spoken(segments) == spoken(whole["segments"]) and [each["word"] for each in words]
    assert [each["word"] for each in words] == [each["word"] for each in whole["words"]]
    assert stream.transcript is not None and stream.transcript["text"] == whole["text"]
    assert [each async for each in stream] == [], "a stream is read once"


async def test_the_options_of_a_recording_are_the_clients(engine: LocalEngine) -> None:
    address = "data:audio/flac;base64," + base64.b64encode(TALK).decode()
    found = (await engine.translate(address, parallel=True, vad=True, **ASKED))["transcript"]
    assert found["duration"] == 35.0 and [each["id"] for each in found["segments"]] == list(
        range(len(found["segments"]))
    )
    with pytest.raises(Rejected, match="timestamps"):
        await engine.transcribe(TALK, timestamps="letters")


async def test_a_stream_that_is_closed_ends_its_requests(engine: LocalEngine) -> None:
    stream = (await engine.transcribe(TALK, stream=True, **ASKED))["segments"]
    async with aclosing(stream):
        await anext(stream)
    assert (await engine.transcribe(encoded(NOISE[:16_000]), **ASKED))["transcript"]["duration"] == 1.0


async def test_each_bad_recording_has_its_error(engine: LocalEngine, tmp_path: Path) -> None:
    for audio, error in (
        (b"no audio at all", AudioUndecodable),
        ("data:audio/wav;base64,!", AudioUndecodable),
        (tmp_path / "nothing.wav", AudioNotFound),
        ("s3://talks/monday.mp3", AudioAddressInvalid),
    ):
        with pytest.raises(error):
            await engine.transcribe(audio)
    with pytest.raises(AudioUndecodable):
        [each async for each in (await engine.transcribe(b"none", stream=True))["segments"]]


async def test_a_stream_that_failed_fails_again_instead_of_waiting(engine: LocalEngine) -> None:
    stream = (await engine.transcribe(b"none", stream=True))["segments"]
    for _ in range(3):
        with pytest.raises(AudioUndecodable):
            await anext(stream)


async def test_a_vision_model_refuses_recordings(tmp_path: Path) -> None:
    seeing = write_checkpoint(tmp_path / "tiny")
    async with LocalEngine(seeing, device="cpu", max_batch=2, threads=1) as engine:
        with pytest.raises(Rejected) as rejected:
            await engine.transcribe(TALK)
    assert rejected.value.failure.code is FailureCode.UNSUPPORTED_SKILL
