"""A skill that another package adds: built and installed as its own wheel, on worker and client alike."""

import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stoop import Client, InvalidJob
from stoop.cli.app import app
from stoop.config import ProducerConfig
from stoop_schemas.event import DeltaEvent
from stoop_schemas.skills import skills
from stoop_worker.celery.message import read_job, read_message
from tests.celery.test_message import message
from tests.flow.scripted import RunningQueue, running_queue

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "stoop-greetings"
version = "1.0"

[project.entry-points."stoop.skills"]
greet = "greetings:GREET"
broken = "greetings:NOTHING"

[tool.hatch.build.targets.wheel]
only-include = ["greetings.py"]
"""

MODULE = """
import msgspec
from stoop_schemas.skills import SkillSpec

def shout(output):
    return msgspec.structs.replace(output, answer=output.answer.upper())

GREET = SkillSpec(
    name="greet", summary="Greet someone.", fields=("object",), required=("object",), output="answer",
    runs="query", prompt="hello {object}", result=shout,
)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package, installed where this process and the workers it starts find it."""
    source, installed = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "greetings.py").write_text(MODULE)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=source, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    monkeypatch.syspath_prepend(installed)
    skills.cache_clear()
    with pytest.warns(UserWarning, match=r"the skill broken \(greetings:NOTHING\) cannot be used"):
        assert "greet" in skills()
    yield installed
    skills.cache_clear()


@pytest.fixture
async def queue(package: Path, tmp_path: Path, redis_url: str) -> AsyncIterator[RunningQueue]:
    async with running_queue(tmp_path, redis_url) as queue:
        await queue.worker()
        yield queue


async def test_a_client_runs_it_on_a_worker(queue: RunningQueue) -> None:
    assert await queue.client.run("greet", object="world") == {"answer": "HELLO WORLD"}
    with pytest.raises(InvalidJob, match="greet needs an object"):
        await queue.client.run("greet")
    job = await queue.client.prepare("greet", object="world", stream=True)
    events = [event async for event in queue.client.stream(await queue.client.submit(job))]
    assert any(isinstance(event, DeltaEvent) for event in events)


async def test_the_model_that_it_runs_on_lists_it(queue: RunningQueue) -> None:
    [model] = await queue.client.models()
    assert "greet" in model.skills


@pytest.mark.usefixtures("package")
def test_the_command_line_and_celery_know_it() -> None:
    helped = CliRunner().invoke(app, ["run", "nope", "x.jpg"])
    assert helped.exit_code == 2 and "greet" in helped.output
    job = read_job(read_message(message("stoop.greet", ("world",)), None))
    assert (job.skill, job.object) == ("greet", "world")


@pytest.mark.usefixtures("package")
def test_its_celery_task_takes_its_fields_in_order() -> None:
    from stoop.celery import task

    assert task("greet").s("world").args == ("world",)
    assert task("greet").name == "stoop.greet"


def test_without_the_package_it_is_refused_by_name() -> None:
    with (
        Client(ProducerConfig(redis_url="redis://127.0.0.1:1/0")) as client,
        pytest.raises(InvalidJob, match="unknown skill 'greet'; known are query, caption, detect, point"),
    ):
        client.prepare("greet", object="world")
