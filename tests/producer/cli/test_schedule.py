"""`stoop schedule` on a scripted queue, and in a process of its own on a tiny model."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from stoop import AsyncClient
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop_schemas.event import Event
from stoop_schemas.failure import Failure, FailureCode
from stoop_schemas.job import Job
from tests.producer.scripted import ScriptedTransport, answer, failing
from tests.support.tiny_model import write_checkpoint

IMAGES = ("s3://photos/a.jpg", "s3://photos/b.jpg")


def script(job: Job) -> Iterable[Event]:
    if job.question == "Broken?":
        return failing(Failure.of(FailureCode.IMAGE_NOT_FOUND, "nothing at the address"))(job)
    return answer(job)


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Leave the log as it was: an engine in this process sets it up for a command."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def transport(monkeypatch: pytest.MonkeyPatch) -> ScriptedTransport:
    for name in ProducerConfig.model_fields:
        monkeypatch.delenv(f"STOOP_{name.upper()}", raising=False)
    return ScriptedTransport(script)


def run(transport: ScriptedTransport, *arguments: str) -> tuple[int, str, str]:
    def connect(config: ProducerConfig) -> AsyncClient:
        return AsyncClient(config, transport=transport)

    done = CliRunner().invoke(app, ["schedule", *arguments], obj=connect)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def images(transport: ScriptedTransport) -> dict[str | None, str | None]:
    return {job.question: job.image for job in transport.submitted}


@pytest.mark.parametrize("flag", [(), ("--stream",)])
def test_every_prompt_is_answered_about_the_one_image(transport: ScriptedTransport, flag: tuple[str, ...]) -> None:
    code, out, _ = run(transport, "How many?", "What colour?", "--image", IMAGES[0], *flag)
    assert code == 0
    assert images(transport) == {"How many?": IMAGES[0], "What colour?": IMAGES[0]}
    assert "> How many?" in out and "> What colour?" in out
    assert all(job.stream is bool(flag) for job in transport.submitted)


def test_images_go_with_the_prompts_in_order(transport: ScriptedTransport) -> None:
    run(transport, "One?", "Two?", "--image", IMAGES[0], "--image", IMAGES[1], "--temperature", "0", "--lane", "bulk")
    assert images(transport) == {"One?": IMAGES[0], "Two?": IMAGES[1]}
    assert all(job.settings.temperature == 0 and job.lane == "bulk" for job in transport.submitted)


def test_without_an_image_the_questions_are_about_text(transport: ScriptedTransport) -> None:
    code, _, _ = run(transport, "Why?", "How?")
    assert code == 0 and images(transport) == {"Why?": None, "How?": None}


def test_one_failure_leaves_the_other_answers_and_json_is_in_order(transport: ScriptedTransport) -> None:
    code, out, _ = run(transport, "First?", "Broken?", "Last?", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [row["prompt"] for row in rows] == ["First?", "Broken?", "Last?"]
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert "nothing at the address" in rows[1]["error"] and rows[0]["answer"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("One?", "Two?", "Three?", "--image", "a", "--image", "b"), "one --image for all prompts, or 3"),
        (("One?", "--stream", "--json"), "choose --stream or --json"),
        (("One?", "--local", "m", "--lane", "bulk"), "--local has no queue"),
        (("One?", "--local", "m", "--adapter", "cats@1"), "--local loads no adapters"),
    ],
)
def test_wrong_usage_is_reported(transport: ScriptedTransport, arguments: tuple[str, ...], complaint: str) -> None:
    code, out, error = run(transport, *arguments)
    assert code == 2 and complaint in out + error
    assert not transport.submitted


@pytest.mark.parametrize("flag", [(), ("--stream",)])
def test_without_a_queue_the_model_answers_here(
    transport: ScriptedTransport, tmp_path: Path, flag: tuple[str, ...]
) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    code, out, _ = run(transport, "Why?", "How?", "--local", str(folder), "--max-tokens", "3", *flag)
    assert code == 0 and "> Why?" in out and "> How?" in out
    assert not transport.submitted


def test_a_bad_image_fails_its_prompt_alone_without_a_queue(transport: ScriptedTransport, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "tiny")
    code, out, _ = run(transport, "Why?", "--image", str(tmp_path / "no.png"), "--local", str(folder), "--json")
    assert code == 1 and "no.png" in json.loads(out.splitlines()[-1])["error"]


def test_a_model_that_is_not_there_is_wrong_usage(transport: ScriptedTransport) -> None:
    code, out, error = run(transport, "Why?", "--local", "nowhere")
    assert code == 2 and "there is no model at nowhere" in out + error
