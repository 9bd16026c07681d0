"""Recordings over HTTP, by OpenAI's own client, before a worker that hears tones."""

import asyncio

import numpy as np
import pytest

from tests.audio.sounds import encoded, tone
from tests.examples.conftest import Deployment
from tests.gateway.conftest import SECONDS, GatewayProcess, http_client

openai = pytest.importorskip("openai")

SHORT = encoded(tone(2.0), "flac", "flac")
LONG = encoded(np.concatenate((tone(30.0), tone(12.0, 3000.0))), "wav", "pcm_s16le")  # too large for a job
SPOKEN = "Band 11."
BOTH = "Band 11. Band 54."


@pytest.fixture
def gateway(speech_gateway: tuple[Deployment, GatewayProcess]) -> GatewayProcess:
    return speech_gateway[1]


def official(gateway: GatewayProcess) -> "openai.AsyncOpenAI":
    return openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key="any", timeout=SECONDS, max_retries=0)


async def test_a_recording_comes_back_in_every_format(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), official(gateway) as client:
        create = client.audio.transcriptions.create
        plain = await create(model="speech", file=("a.flac", SHORT))
        assert plain.text == SPOKEN and plain.usage.seconds == 2
        text = await create(model="speech", file=("a.flac", SHORT), response_format="text")
        assert text == SPOKEN + "\n"
        srt = await create(model="speech", file=("a.wav", LONG), response_format="srt")
        assert srt == ("1\n00:00:00,000 --> 00:00:30,000\nBand 11.\n\n2\n00:00:30,000 --> 00:00:42,000\nBand 54.\n\n")
        vtt = await create(model="speech", file=("a.flac", SHORT), response_format="vtt")
        assert vtt == "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nBand 11.\n\n"


async def test_verbose_json_has_all_fields_and_words_when_asked(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), official(gateway) as client:
        create = client.audio.transcriptions.create
        answered = await create(model="speech", file=("a.wav", LONG), response_format="verbose_json")
        assert (answered.text, answered.language, answered.duration, answered.words) == (BOTH, "german", 42.0, None)
        assert [(each.id, each.seek, each.start, each.end) for each in answered.segments] == [
            (0, 0, 0.0, 30.0),
            (1, 3000, 30.0, 42.0),
        ]
        assert (answered.segments[0].avg_logprob, answered.segments[0].no_speech_prob) == (-0.25, 0.05)
        both = ["word", "segment"]
        answered = await create(
            model="speech", file=("a.flac", SHORT), response_format="verbose_json", timestamp_granularities=both
        )
        assert [(each.word, each.start) for each in answered.words] == [("Band", 0.0), ("11.", 0.25)]
        assert len(answered.segments) == 1
        answered = await create(
            model="speech",
            file=("a.flac", SHORT),
            language="en",
            response_format="verbose_json",
            timestamp_granularities=["word"],
        )
        assert (answered.language, len(answered.words), answered.segments) == ("english", 2, None)


async def test_a_recording_is_cut_by_voice_activity(gateway: GatewayProcess) -> None:
    pause = encoded(np.concatenate((tone(20.0), np.zeros(20 * 16_000, np.int16), tone(5.0, 3000.0))), "flac", "flac")
    async with asyncio.timeout(SECONDS), official(gateway) as client:
        answered = await client.audio.transcriptions.create(
            model="speech", file=("a.flac", pause), response_format="verbose_json", chunking_strategy="auto"
        )
    assert answered.text == BOTH
    assert [round(each.start) for each in answered.segments] == [0, 40], "the second window begins with the speech"


async def test_a_translation_is_english(gateway: GatewayProcess) -> None:
    # the client warns that it will lose this call
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        data = {"model": "speech", "response_format": "verbose_json"}
        answered = (await http.post("/v1/audio/translations", data=data, files={"file": ("a.flac", SHORT)})).json()
        assert (answered["task"], answered["language"], answered["text"]) == (
            "translate",
            "english",
            "The loudest band is 11.",
        )
        assert answered["segments"][0]["text"] == " The loudest band is 11."


async def test_the_text_is_streamed_as_it_comes(gateway: GatewayProcess) -> None:
    async with asyncio.timeout(SECONDS), official(gateway) as client:
        stream = await client.audio.transcriptions.create(model="speech", file=("a.wav", LONG), stream=True)
        events = [event async for event in stream]
    assert "".join(event.delta for event in events[:-1]) == BOTH
    assert (events[-1].type, events[-1].text) == ("transcript.text.done", BOTH)
    assert events[-1].usage.total_tokens > 0


async def test_an_option_that_cannot_be_honoured_is_refused_by_its_name(gateway: GatewayProcess) -> None:
    file = {"file": ("a.flac", SHORT)}
    async with asyncio.timeout(SECONDS), http_client(gateway) as http:
        for route, data, files, status, code, param in (
            ("transcriptions", {"chunking_strategy": "loud"}, file, 400, "invalid_value", "chunking_strategy"),
            ("transcriptions", {"response_format": "diarized_json"}, file, 400, "invalid_value", "response_format"),
            ("transcriptions", {"temperature": "2"}, file, 400, "invalid_value", "temperature"),
            ("transcriptions", {"stream": "true", "response_format": "srt"}, file, 400, "unsupported_value", "stream"),
            (
                "transcriptions",
                {"timestamp_granularities[]": "word"},
                file,
                400,
                "invalid_value",
                "timestamp_granularities[]",
            ),
            ("transcriptions", {"language": "English"}, file, 400, "invalid_argument", "language"),
            ("translations", {"language": "en"}, file, 400, "unsupported_parameter", "language"),
            ("transcriptions", {"model": "whisper-1"}, file, 404, "model_not_found", None),
            ("transcriptions", {}, {"file": ("a.mp3", b"no audio at all")}, 400, "audio_undecodable", None),
        ):
            answered = await http.post(f"/v1/audio/{route}", data={"model": "speech", **data}, files=files)
            error = answered.json()["error"]
            assert (answered.status_code, error["code"], error.get("param")) == (status, code, param), data
