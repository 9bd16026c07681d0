"""`make images` builds every Dockerfile with the first program that is there."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.project.modules import ROOT

BASH = shutil.which("bash")
TOOLS = ("dirname", "head", "python3", "sed", "grep", "sort")
# Stands for a program that builds images: notes down its arguments, and names a size when asked for one.
ENGINE = """#!{bash}
[ "$1" = info ] && exit {info}
[ "$1" = build ] && echo "${{0##*/}} $*" >> "$NOTES" || echo "1.3 GB"
"""

pytestmark = pytest.mark.skipif(BASH is None, reason="no bash on this machine")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def add_engine(tools: Path, name: str, *, answers: bool = True) -> None:
    program = tools / name
    program.write_text(ENGINE.format(bash=BASH, info=0 if answers else 1))
    program.chmod(0o755)


def build(tools: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    notes = tools.parent / "notes"
    notes.touch()
    environment = {"PATH": str(tools), "NOTES": str(notes), "HOME": os.environ.get("HOME", ""), **variables}
    done = subprocess.run([str(BASH), ROOT / "deploy/images.sh"], env=environment, capture_output=True, text=True)
    return done, notes.read_text().splitlines()


def test_every_dockerfile_is_built_and_its_size_is_printed(tools: Path) -> None:
    add_engine(tools, "podman")
    done, builds = build(tools, EXTRA="gpu", TRITON="tritonserver:26.07-py3", BUILD_FLAGS="--network host")
    assert done.returncode == 0, done.stderr
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").glob("*.Dockerfile")}
    assert {word for line in builds for word in line.split() if word.endswith(".Dockerfile")} == files
    assert all(line.startswith("podman build ") and "--network host" in line for line in builds)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "stoop-producer",
        "stoop-worker:gpu",
        "stoop-triton",
    ]
    assert done.stdout.count("1.3 GB") == 3
    assert "--build-arg EXTRA=gpu" in builds[1]
    assert "--build-arg TRITON=tritonserver:26.07-py3" in builds[2]


def test_an_image_that_needs_one_of_another_project_is_built_only_if_asked(tools: Path) -> None:
    add_engine(tools, "podman")
    done, builds = build(tools)
    assert done.returncode == 0, done.stderr
    assert not any("triton" in line for line in builds)


@pytest.mark.parametrize(
    ("daemon", "variables", "chosen"),
    [(True, {}, "docker"), (False, {}, "podman"), (True, {"ENGINE": "buildah"}, "buildah")],
)
def test_docker_is_taken_only_if_its_daemon_answers(
    tools: Path, daemon: bool, variables: dict[str, str], chosen: str
) -> None:
    add_engine(tools, "docker", answers=daemon)
    for name in ("podman", "buildah"):
        add_engine(tools, name)
    _, builds = build(tools, **variables)
    assert {line.split()[0] for line in builds} == {chosen}


def test_without_a_container_program_it_names_three_to_install(tools: Path) -> None:
    done, builds = build(tools)
    assert done.returncode != 0
    assert builds == []
    assert "install one of the three" in done.stderr


@pytest.mark.parametrize("variables", [{"PIP": "host"}, {"BASE": "debian"}])
def test_an_option_that_docker_lacks_is_refused_with_an_alternative(tools: Path, variables: dict[str, str]) -> None:
    add_engine(tools, "docker")
    done, builds = build(tools, **variables)
    assert (done.returncode, builds) == (2, [])
    assert "ENGINE=podman or ENGINE=buildah" in done.stderr


@pytest.mark.parametrize(("runtime", "isolation"), [("crun", ""), ("", "chroot")])
def test_buildah_without_a_runtime_isolates_by_chroot(tools: Path, runtime: str, isolation: str) -> None:
    add_engine(tools, "buildah")
    (tools / "buildah").write_text(
        f'#!{BASH}\n[ "$1" = build ] && echo "[$BUILDAH_ISOLATION]" >> "$NOTES" || echo 1 GB'
    )
    if runtime:
        add_engine(tools, runtime)
    done, builds = build(tools, ENGINE="buildah")
    assert done.returncode == 0, done.stderr
    assert set(builds) == {f"[{isolation}]"}
