"""`stoop transcribe` and `stoop translate` on a queue that a test scripts."""

import json

import msgspec
import pytest

from stoop.config import ProducerConfig
from stoop_schemas.transcript import Timestamps
from tests.producer.cli.test_cli import Terminal
from tests.producer.client.test_speech import TRANSCRIPT, spoken
from tests.producer.scripted import ScriptedTransport

AUDIO = "s3://talks/a.mp3"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)
    return Terminal(ScriptedTransport(spoken))


def test_the_text_is_printed_plainly(terminal: Terminal) -> None:
    code, out, _ = terminal.run("transcribe", AUDIO)
    assert (code, out) == (0, "Part 0. Part 1. Part 2.\n")


def test_subtitles_and_json_are_printed_whole(terminal: Terminal) -> None:
    code, out, aside = terminal.run("transcribe", AUDIO, "--format", "srt")
    assert (code, aside) == (0, "") and out.startswith("1\n00:00:00,000 --> 00:00:02,000\nPart 0.\n\n2\n")
    assert terminal.run("transcribe", AUDIO, "--format", "vtt")[1].startswith("WEBVTT\n\n00:00:00.000 --> ")
    as_json = terminal.run("transcribe", AUDIO, "--format", "json")[1]
    assert json.loads(as_json) == msgspec.to_builtins(TRANSCRIPT)
    assert json.loads(terminal.run("translate", AUDIO, "--json")[1])["output"]["transcript"]["language"] == "en"


def test_segments_are_printed_as_they_come(terminal: Terminal) -> None:
    code, out, _ = terminal.run("translate", AUDIO, "--stream")
    assert code == 0 and out.split("\n") == [
        "[00:00.000 --> 00:02.000] Part 0.",
        "[00:30.000 --> 00:32.000] Part 1.",
        "[01:00.000 --> 01:02.000] Part 2.",
        "",
    ]


def test_the_options_reach_the_job(terminal: Terminal) -> None:
    options = (
        "--language",
        "de",
        "--prompt",
        "Falke",
        "--timestamps",
        "word",
        "--temperature",
        "0.2",
        "--model",
        "whisper",
        "--vad",
        "--parallel",
    )
    assert terminal.run("transcribe", AUDIO, "--lane", "bulk", *options)[0] == 0
    [job] = terminal.transport.submitted
    assert (job.audio, job.language, job.prompt, job.timestamps) == (AUDIO, "de", "Falke", Timestamps.WORD)
    assert job.vad and job.parallel
    assert (job.settings.temperature, job.model, job.lane) == (0.2, "whisper", "bulk")


@pytest.mark.parametrize(
    "wrong",
    [
        ("--stream", "--format", "srt"),
        ("--format", "vtt", "--timestamps", "none"),
        ("--draw", "a.png"),
        ("--max-objects", "3"),
        ("--stop", "the end"),
    ],
)
def test_options_that_exclude_each_other_are_reported(terminal: Terminal, wrong: tuple[str, ...]) -> None:
    assert terminal.run("transcribe", AUDIO, *wrong)[0] == 2
    assert terminal.transport.submitted == []


def test_a_file_that_is_not_there_is_reported_in_a_line(terminal: Terminal) -> None:
    code, _, aside = terminal.run("transcribe", "/nowhere/talk.mp3")
    assert (code, aside) == (2, "error: there is no file /nowhere/talk.mp3\n")
