"""The Dockerfiles copy only files that exist, and their images run as a user without rights."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

from tests.project.modules import ROOT, VERSION

OURS = ["deploy/worker.Dockerfile", "deploy/producer.Dockerfile"]
TRITON = "deploy/triton.Dockerfile"
FILES = [*OURS, TRITON]
INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "ENV", "VOLUME", "USER", "ENTRYPOINT", "CMD"}


def instructions(file: str) -> list[tuple[str, str]]:
    """Each instruction with its argument, comments gone and lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines if line.strip()]


def arguments(file: str, instruction: str) -> list[str]:
    return [argument for name, argument in instructions(file) if name == instruction]


def is_ignored(path: PurePosixPath) -> bool:
    """Return whether `.dockerignore` keeps the path from the build: the last line to name it or a folder above it
    decides.
    """
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").rstrip("/")
        if not pattern or line.startswith("#"):
            continue
        anywhere = pattern.startswith("**/")
        for above in (path, *path.parents[:-1]):
            if fnmatch(above.name if anywhere else str(above), pattern.removeprefix("**/")):
                ignored = not line.startswith("!")
    return ignored


def copy_context(source: str, to: Path) -> None:
    """Copy one file or folder as COPY does: only files that are not ignored reach the image."""
    top = ROOT / source
    for path in top.rglob("*") if top.is_dir() else [top]:
        relative = path.relative_to(ROOT)
        if path.is_file() and not is_ignored(PurePosixPath(relative.as_posix())):
            copied = to / path.relative_to(top) if top.is_dir() else to
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)


def build_wheels(file: str, folder: Path) -> list[set[str]]:
    """Follow the Dockerfile's first stage, where each `pip install` builds a wheel; the names of the files in each."""
    source, wheels = folder / "src", []
    source.mkdir()
    build = f"{sys.executable} -m hatchling build -t wheel -d {folder / 'dist'} #"
    stage = instructions(file)
    names = [name for name, _ in stage]
    ends = [index for index, name in enumerate(names) if name == "FROM"][1:] or [len(names)]
    for name, argument in stage[: ends[0]]:
        if name == "COPY":
            *copied, to = argument.split()
            for path in copied:
                copy_context(path, source / to / path if to.endswith("/") else source / to)
        elif name == "RUN" and "pip install" in argument:
            command = re.sub(r"(/opt/stoop/bin/|python3 -m )pip install", build, argument)
            subprocess.run(["sh", "-ec", command], cwd=source, check=True, capture_output=True)
            [wheel] = (folder / "dist").glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                wheels.append(set(archive.namelist()))
            wheel.unlink()
    return wheels


@pytest.mark.parametrize(
    ("file", "packages"),
    [
        ("deploy/worker.Dockerfile", {"schemas/stoop_schemas", "producer/stoop", "worker/stoop_worker"}),
        ("deploy/producer.Dockerfile", {"schemas/stoop_schemas", "producer/stoop"}),
        (TRITON, {"schemas/stoop_schemas", "producer/stoop"}),
    ],
)
def test_the_copied_files_are_enough_to_build_the_package(file: str, packages: set[str], tmp_path: Path) -> None:
    around, whole = build_wheels(file, tmp_path)
    assert {name.split("/")[0] for name in around} == {f"stoop-{VERSION}.dist-info"}
    assert {name.split("/")[0] for name in whole} == {
        *(name.split("/")[1] for name in packages),
        f"stoop-{VERSION}.dist-info",
    }
    assert {"stoop/redis/scripts/submit.lua", "stoop_schemas/json/job.schema.json"} <= whole
    # files that Python reads besides modules
    sources = {
        path.relative_to((ROOT / name).parent).as_posix() for name in packages for path in (ROOT / name).rglob("*.cu")
    }
    assert sources <= whole
    assert not any(name.startswith("stoop/demo/demo_") for name in whole), "the demo's models are not needed there"


def test_every_dockerfile_is_tested() -> None:
    assert sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").glob("*Dockerfile*")) == sorted(FILES)


@pytest.mark.parametrize("file", FILES)
def test_it_is_made_of_known_instructions(file: str) -> None:
    assert {name for name, _ in instructions(file)} <= INSTRUCTIONS


@pytest.mark.parametrize("file", FILES)
def test_copied_files_are_not_ignored_by_the_build(file: str) -> None:
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
def test_it_starts_its_program_without_a_shell(file: str) -> None:
    """So that SIGTERM reaches it."""
    program = "tritonserver" if file == TRITON else "stoop"
    assert [json.loads(argument) for argument in arguments(file, "ENTRYPOINT")] == [[program]]
    assert all(isinstance(json.loads(argument), list) for argument in arguments(file, "CMD"))


@pytest.mark.parametrize("file", OURS)
def test_the_base_is_of_one_version(file: str) -> None:
    python = dict(argument.split("=", 1) for argument in arguments(file, "ARG") if "=" in argument)["PYTHON"]
    assert re.fullmatch(r"3\.\d+", python)
    assert {argument.split()[0] for argument in arguments(file, "FROM")} == {"python:${PYTHON}-slim"}


def test_the_producers_image_has_the_gateway_and_no_worker() -> None:
    assert not any("worker" in argument for argument in arguments("deploy/producer.Dockerfile", "COPY"))
    extras = re.findall(r"\.\[(.*?)\]", " ".join(arguments("deploy/producer.Dockerfile", "RUN")))
    assert extras == ["grpc,otel"]


def test_the_triton_of_the_image_asks_the_model_whether_it_is_ready() -> None:
    """Releases before 26.03 do not."""
    [base] = arguments(TRITON, "ARG")
    release = re.fullmatch(r"TRITON=tritonserver:(\d+)\.(\d+)-py3", base)
    assert release is not None and (int(release[1]), int(release[2])) >= (26, 3)
    assert arguments(TRITON, "FROM") == ["${TRITON}"]
