"""The Dockerfiles build on what is there, and what they build runs as nobody in particular."""

import json
import re
from fnmatch import fnmatch

import pytest

from tests.project.modules import ROOT

FILES = ["deploy/worker.Dockerfile", "deploy/producer.Dockerfile"]
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "ENV", "VOLUME", "USER", "ENTRYPOINT", "CMD"}


def instructions(file: str) -> list[tuple[str, str]]:
    """Each instruction with its argument, comments gone and lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines if line.strip()]


def arguments(file: str, instruction: str) -> list[str]:
    return [argument for name, argument in instructions(file) if name == instruction]


def test_every_dockerfile_is_tested() -> None:
    assert sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").glob("*Dockerfile*")) == sorted(FILES)


@pytest.mark.parametrize("file", FILES)
def test_it_is_made_of_known_instructions(file: str) -> None:
    assert {name for name, _ in instructions(file)} <= INSTRUCTIONS


@pytest.mark.parametrize("file", FILES)
def test_what_it_copies_reaches_the_build(file: str) -> None:
    allowed = [
        line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    ]
    copied = [argument.split()[:-1] for argument in arguments(file, "COPY") if not argument.startswith("--from=")]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in allowed)


@pytest.mark.parametrize("file", FILES)
def test_it_ends_as_a_user_without_rights(file: str) -> None:
    made = re.search(r"useradd --uid (\d+) \S+ (\w+)", " ".join(arguments(file, "RUN")))
    assert made is not None and int(made[1]) >= 10_000
    assert arguments(file, "USER") == [made[2]]
    names = [name for name, _ in instructions(file)]
    assert names.index("USER") > max(index for index, name in enumerate(names) if name in ("RUN", "COPY"))


@pytest.mark.parametrize("file", FILES)
def test_it_starts_the_command_line_without_a_shell(file: str) -> None:
    """So that SIGTERM reaches it."""
    assert [json.loads(argument) for argument in arguments(file, "ENTRYPOINT")] == [["stoop"]]
    assert all(isinstance(json.loads(argument), list) for argument in arguments(file, "CMD"))


@pytest.mark.parametrize("file", FILES)
def test_the_base_is_of_one_version(file: str) -> None:
    python = dict(argument.split("=", 1) for argument in arguments(file, "ARG") if "=" in argument)["PYTHON"]
    assert re.fullmatch(r"3\.\d+", python)
    assert {argument.split()[0] for argument in arguments(file, "FROM")} == {"python:${PYTHON}-slim"}


def test_the_producers_image_has_no_worker() -> None:
    assert not any("worker" in argument for argument in arguments("deploy/producer.Dockerfile", "COPY"))
    assert not any("[" in argument for argument in arguments("deploy/producer.Dockerfile", "RUN"))
