"""The shell script: a job with nothing but redis-cli."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stoop.demo.pictures import Picture
from tests.examples.conftest import EXAMPLES, Deployment
from tests.examples.streaming_child import words

SCRIPT = EXAMPLES / "redis_cli" / "ask.sh"


def run(environment: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(SCRIPT), *arguments]
    if shutil.which("redis-cli", path=environment["PATH"]) is None:
        pytest.skip("no redis-cli on this machine")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def events(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_question_about_an_image_is_answered(demo_deployment: tuple[Deployment, Picture, str]) -> None:
    deployment, picture, image = demo_deployment
    done = run(deployment.variables, "How many shapes are there?", image)
    assert (done.returncode, done.stderr) == (0, "")
    *log, result = events(done)
    assert [event["type"] for event in log] == ["started", *["delta"] * (len(log) - 2), "finished"]
    assert result["output"]["answer"] == str(len(picture.shapes))
    assert result == log[-1]["result"]


def test_every_word_is_printed_once_and_in_order(streaming_deployment: Deployment) -> None:
    done = run(streaming_deployment.variables, "tell 40")
    *log, result = events(done)
    assert [event["seq"] for event in log] == list(range(len(log)))
    assert "".join(event["text"] for event in log if event["type"] == "delta") == "".join(words(40))
    assert result["output"]["answer"] == "".join(words(40))


def test_a_question_is_sent_as_it_is_written(streaming_deployment: Deployment) -> None:
    """The engine answers by the question."""
    question = r"""what's "this" \ $(that) `here` 100% {"a": 1} größer 犬 \n"""
    assert events(run(streaming_deployment.variables, question))[-1]["output"]["answer"] == question


def test_each_failure_has_its_own_exit_code(
    streaming_deployment: Deployment, demo_deployment: tuple[Deployment, Picture, str]
) -> None:
    failed = run(streaming_deployment.variables, "what?", "s3://nowhere/a.png")
    assert failed.returncode == 1
    assert events(failed)[-1]["status"] == "failed"
    assert run(streaming_deployment.variables).returncode == 2
    away = run({**streaming_deployment.variables, "STOOP_REDIS_URL": "redis://127.0.0.1:1/0"}, "what?")
    assert (away.returncode, away.stdout) == (3, "")
    late = run({**streaming_deployment.variables, "STOOP_TIMEOUT_SECONDS": "0"}, "wait")
    assert late.returncode == 4
    assert "is a worker running?" in late.stderr


def test_the_script_is_executable() -> None:
    assert Path(SCRIPT).stat().st_mode & 0o111
