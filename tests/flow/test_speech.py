"""Recordings from the client through S3, Redis and the engine's process, and back; the engine hears tones."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.bulk.process import BulkProcess
from stoop import AsyncClient, Client, JobCancelled, JobFailed
from stoop.celery import configure, transcribe
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop.demo.embedded import EmbeddedS3, embedded_redis
from stoop.demo.worker_process import running_worker
from stoop_schemas.event import SegmentEvent
from tests.audio.sounds import encoded, tone, write_recordings
from tests.bulk.folder import lines, rows
from tests.examples.conftest import Deployment, new_deployment
from tests.support.speech_worker import speech_worker
from tests.support.tiny_whisper import write_whisper

SECONDS = 60.0
TALK = encoded(np.concatenate((tone(30.0), np.zeros(30 * 16_000, np.int16), tone(5.0, 3000.0))), "mp3", "libmp3lame")


@pytest.fixture(scope="module")
def deployment(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("speech")
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        deployment = new_deployment(stack.enter_context(embedded_redis(folder / "redis")), s3)
        stack.enter_context(speech_worker(folder, deployment.variables))
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        s3.client().put_object(Bucket=s3.bucket, Key="talks/monday.mp3", Body=TALK)
        yield deployment


@pytest.fixture
def address(deployment: Deployment) -> str:
    return f"s3://{deployment.s3.bucket}/talks/monday.mp3"


def test_a_recording_in_the_store_becomes_a_transcript(deployment: Deployment, address: str) -> None:
    with Client(deployment.config) as client:
        found = client.transcribe(address, timestamps="word")["transcript"]
    assert (found["text"], found["language"]) == ("Band 11. Band 54.", "de")
    assert found["duration"] == pytest.approx(65.0, abs=0.2)
    assert [(each["id"], each["seek"]) for each in found["segments"]] == [(0, 0), (1, 6000)], "one window is silent"
    assert [each["word"] for each in found["words"]] == [" Band", " 11.", " Band", " 54."]
    assert found["words"][2]["start"] == 60.0


def test_all_windows_of_a_recording_at_once_give_the_same_transcript(deployment: Deployment, address: str) -> None:
    with Client(deployment.config) as client:
        in_turn = client.transcribe(address)["transcript"]
        at_once = client.transcribe(address, parallel=True)["transcript"]
        spoken = client.transcribe(address, parallel=True, vad=True)["transcript"]
    assert at_once["text"] == spoken["text"] == in_turn["text"] == "Band 11. Band 54."
    assert [each["id"] for each in at_once["segments"]] == [0, 1]
    assert spoken["segments"][1]["start"] == pytest.approx(59.6, abs=0.1), "silence has no window"


async def test_segments_arrive_while_the_recording_is_still_worked_on(deployment: Deployment, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with asyncio.timeout(SECONDS), AsyncClient(deployment.config) as client:
        audio = encoded(tone(40.0), "flac", "flac")
        stream = (await client.transcribe(audio, stream=True, prompt=f"until {gate}"))["segments"]
        first = await anext(stream)
        assert (first["text"], gate.exists()) == (" Band 11.", False)
        gate.touch()
        assert [each["start"] async for each in stream] == [30.0]
        assert stream.transcript["text"] == "Band 11. Band 11."


async def test_a_recording_is_cancelled_between_its_windows(deployment: Deployment, tmp_path: Path) -> None:
    async with asyncio.timeout(SECONDS), AsyncClient(deployment.config) as client:
        prompt = f"until {tmp_path / 'never'}"
        job = await client.prepare("transcribe", audio=encoded(tone(40.0), "flac", "flac"), prompt=prompt, stream=True)
        job_id = await client.submit(job)
        async with contextlib.aclosing(client.stream(job_id)) as events:
            async for event in events:
                if isinstance(event, SegmentEvent):
                    await client.cancel(job_id)
        with pytest.raises(JobCancelled):
            await client.result(job_id)


def test_hostile_files_fail_with_a_code_each(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "letter.mp3").write_text("Dear Sir or Madam,\n" * 1000)
    with Client(deployment.config) as client:
        for audio, code in (
            (tmp_path / "letter.mp3", "audio_undecodable"),
            (f"s3://{deployment.s3.bucket}/talks/nothing.mp3", "audio_not_found"),
            ("https://example.com/talk.mp3", "invalid_argument"),
            (b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n", "audio_undecodable"),
        ):
            with pytest.raises(JobFailed) as failed:
                client.transcribe(audio)
            assert failed.value.failure.code == code


def test_the_command_line_writes_subtitles(deployment: Deployment, address: str) -> None:
    def connect(_: ProducerConfig) -> Client:
        return Client(deployment.config)

    ran = CliRunner().invoke(app, ["transcribe", address, "--format", "srt", "--language", "en"], obj=connect)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("1\n00:00:00,000 --> 00:00:30,000\nBand 11.\n\n2\n00:01:00,000 --> ")
    ran = CliRunner().invoke(app, ["translate", address, "--json"], obj=connect)
    assert json.loads(ran.stdout)["output"]["transcript"]["segments"][1]["text"] == " The loudest band is 54."


def test_celery_sends_a_recording(deployment: Deployment, address: str) -> None:
    celery = pytest.importorskip("celery")
    # a current one would stay so after its end, and would not know the tasks that other tests add
    application = configure(
        celery.Celery("talks", broker=deployment.redis_url, backend=deployment.redis_url, set_as_current=False)
    )
    try:
        found = application.tasks[transcribe.name].delay(address, language="en").get(timeout=SECONDS)
    finally:
        application.close()
    assert found["transcript"]["text"] == "Band 11. Band 54."


def test_a_bulk_run_transcribes_the_recordings_under_a_prefix(deployment: Deployment, tmp_path: Path) -> None:
    for name, body in (("a.mp3", TALK), ("b.mp3", b"no audio at all"), ("c.txt", b"no recording")):
        deployment.s3.client().put_object(Bucket=deployment.s3.bucket, Key=f"shelf/{name}", Body=body)
    prefix, out = f"s3://{deployment.s3.bucket}/shelf/", tmp_path / "out"
    asked = ("--skill", "transcribe", "--language", "en", "--vad", "--out", str(out), "--json")
    code, _, errors = BulkProcess([prefix, *asked], deployment.variables).finish()
    assert code == 0, errors
    [found] = lines(out, "results-*")
    [failed] = lines(out, "errors*")
    assert found["output"]["transcript"]["text"] == "Band 11. Band 54."
    assert found["output"]["transcript"]["language"] == "en"
    assert (failed["row"], failed["failure"]["code"]) == (f"{prefix}b.mp3", "audio_undecodable")
    with Client(deployment.config) as client:
        assert client.stored_result(found["job"]) is None, "it leaves Redis once it is on disk"
    ran = CliRunner().invoke(app, ["export", str(out), "--format", "vtt", "--out", str(tmp_path / "vtt")])
    assert ran.exit_code == 0, ran.output
    [subtitles] = (tmp_path / "vtt").rglob("*.*")
    assert subtitles.name == "a.vtt" and subtitles.read_text().startswith("WEBVTT\n\n00:00:00.000 --> ")


def test_a_killed_run_over_recordings_is_resumed_with_each_row_once(deployment: Deployment, tmp_path: Path) -> None:
    folder, out, gate = tmp_path / "talks", tmp_path / "out", tmp_path / "gate"
    write_recordings(folder, count=12, bad=3, long=2)
    environment = {**deployment.variables, "STOOP_BUCKET": deployment.s3.bucket}
    # the second window of the long ones waits for the gate, so no run ends before its kill
    arguments = [str(folder), "--skill", "transcribe", "--prompt", f"until {gate}", "--out", str(out)]
    for ended in (4, 10):
        run = BulkProcess(arguments, environment)
        assert run.wait_until(ended) <= 10
        run.kill()
    gate.touch()
    code, _, errors = BulkProcess(arguments, environment).finish()
    assert code == 0, errors
    assert sorted(rows(out)) == sorted(path.name for path in folder.iterdir())
    assert [line["failure"]["code"] for line in lines(out, "errors.jsonl")] == 3 * ["audio_undecodable"]
    assert len(lines(out, "results-*")) == 9


@pytest.fixture(scope="module")
def whisper(s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProducerConfig]:
    """A queue with a worker of a tiny random Whisper."""
    folder = tmp_path_factory.mktemp("whisper")
    model = write_whisper(folder / "model")
    with pytest.MonkeyPatch.context() as patch, embedded_redis(folder / "redis") as redis:
        patch.delenv("STOOP_REDIS_URL", raising=False)
        flags = {"lanes": "interactive", "threads": "1"}
        with running_worker(folder, str(model.folder), redis, s3, flags):
            yield new_deployment(redis, s3).config


def test_a_whisper_writes_down_a_long_recording(whisper: ProducerConfig) -> None:
    noise = (3000 * np.random.default_rng(0).normal(size=35 * 16_000)).astype(np.int16)
    audio = encoded(noise, "flac", "flac")
    with Client(whisper) as client:
        asked = {"language": "en", "timestamps": "word", "settings": {"temperature": 0.0, "max_tokens": 24}}
        found = client.transcribe(audio, **asked)["transcript"]
        assert client.transcribe(audio, **asked)["transcript"]["text"] == found["text"]
        assert (found["language"], found["duration"]) == ("en", 35.0)
        times = [(each["seek"] / 100, each["start"], each["end"], 35.0) for each in found["segments"]]
        assert times and all(list(each) == sorted(each) for each in times)
        assert {each["temperature"] for each in found["segments"]} == {0.0}
        german = client.translate(audio, settings={"max_tokens": 8, "temperature": 0.0})["transcript"]
        assert german["language"] in ("en", "zh", "de", "es", "ru")
