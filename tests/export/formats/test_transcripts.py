"""Transcripts as files, one for each recording."""

import json
from pathlib import Path
from typing import Any

import pytest

from stoop.errors import ConfigError
from tests.export.truth import exported, failed, line

SEGMENT = {"seek": 0, "tokens": [1], "temperature": 0.0, "avg_logprob": -0.2, "compression_ratio": 1.0}


def heard(address: str | None, text: str) -> Any:
    segment = {**SEGMENT, "id": 0, "start": 0.5, "end": 2.0, "text": f" {text}", "no_speech_prob": 0.1}
    transcript = {"text": text, "language": "en", "duration": 2.0, "segments": [segment]}
    return line(address, "transcribe", transcript=transcript)


def written(results: list[Any], kind: str, tmp_path: Path) -> dict[str, str]:
    source, out = tmp_path / "results-0.jsonl", tmp_path / "out"
    source.write_text("".join(json.dumps(each) + "\n" for each in results))
    exported(source, kind, out)
    return {str(path.relative_to(out)): path.read_text() for path in sorted(out.rglob("*.*")) if path.is_file()}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("txt", "Hello.\n"),
        ("srt", "1\n00:00:00,500 --> 00:00:02,000\nHello.\n\n"),
        ("vtt", "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\nHello.\n\n"),
    ],
)
def test_each_recording_has_a_file_with_its_path_and_name(kind: str, content: str, tmp_path: Path) -> None:
    results = [heard("s3://talks/2026/monday.mp3", "Hello."), failed("s3://talks/2026/tuesday.mp3")]
    assert written(results, kind, tmp_path) == {f"2026/monday.{kind}": content}


def test_recordings_of_a_folder_have_their_paths_in_that_folder(tmp_path: Path) -> None:
    local = heard(str(tmp_path / "talks" / "2026" / "monday.mp3"), "Hello.") | {"id": "2026/monday.mp3"}
    assert set(written([local], "txt", tmp_path)) == {"2026/monday.txt"}


def test_json_has_the_whole_transcript(tmp_path: Path) -> None:
    [text] = written([heard("monday.mp3", "Hello.")], "json", tmp_path).values()
    assert json.loads(text)["segments"][0]["avg_logprob"] == -0.2


def test_recordings_of_one_name_have_files_of_their_own(tmp_path: Path) -> None:
    addresses = ("s3://a/x.mp3", "s3://b/x.mp3", "s3://b/x.mp3", "s3://a/x.txt/y.mp3", None)
    found = written([heard(each, f"Talk {number}.") for number, each in enumerate(addresses)], "txt", tmp_path)
    assert sorted(found.values()) == [f"Talk {number}.\n" for number in range(5)]
    assert found["x.txt"] == "Talk 0.\n"


def test_no_address_leads_out_of_the_folder(tmp_path: Path) -> None:
    found = written([heard("../../up.mp3", "Up."), heard("s3://a/../../etc/x.mp3", "Etc.")], "txt", tmp_path)
    assert set(found) == {"up.txt", "etc/x.txt"}


def test_results_without_transcripts_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to write"):
        written([line("a.jpg", "query", answer="a cat")], "srt", tmp_path)
    assert not (tmp_path / "out").exists()
