"""`pip install` installs the three packages with all files that they read at run time, and no others."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.project.modules import ROOT, VERSION

PACKAGES = {"schemas": "stoop_schemas", "producer": "stoop", "worker": "stoop_worker"}


def build(target: str, project: Path, folder: Path) -> Path:
    """Build one file of a project, as `make dist` does, into an empty folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(built: Path) -> set[str]:
    """The names of the files in the wheel."""
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_has_every_file_of_the_packages(wheel: set[str]) -> None:
    ours = {
        path.relative_to(ROOT / top).as_posix()
        for top, package in PACKAGES.items()
        for path in (ROOT / top / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= wheel
    assert {path for path in ours if path.endswith(".lua")}, "the scripts travel with the code"
    assert {"stoop_schemas/json/job.schema.json", "stoop_worker/py.typed"} <= ours


def test_the_wheel_has_nothing_else(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel} == {*PACKAGES.values(), f"stoop-{VERSION}.dist-info"}


def test_the_sdist_builds_the_same_wheel(wheel: set[str], tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    [unpacked] = tmp_path.glob("stoop-*")
    with zipfile.ZipFile(build("wheel", unpacked, tmp_path / "wheel")) as archive:
        assert set(archive.namelist()) == wheel
    assert {"Makefile", "tests", "CHANGELOG.md"} <= {path.name for path in unpacked.iterdir()}


def test_a_users_own_modules_may_have_any_of_the_folders_names(built: Path, tmp_path: Path) -> None:
    """The wheel, installed beside an application whose modules are called `schemas`, `producer` and `worker`."""
    installed = tmp_path / "site-packages"
    with zipfile.ZipFile(built) as archive:
        archive.extractall(installed)
    assert not {"schemas", "producer", "worker"} & {path.name for path in installed.iterdir()}
    for name in ("schemas", "producer", "worker"):
        (tmp_path / f"{name}.py").write_text(f"ITEM = {name!r}\n")
    (tmp_path / "app.py").write_text(
        "import producer, schemas, worker\n"
        "import stoop, stoop.cli.app, stoop_schemas.job, stoop_worker.config\n"
        "print(producer.ITEM, schemas.ITEM, worker.ITEM, stoop.__file__)\n"
    )
    paths = os.pathsep.join([str(tmp_path), str(installed)])
    started = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert started.stdout.split() == ["producer", "schemas", "worker", str(installed / "stoop" / "__init__.py")]


def test_every_entry_point_can_be_loaded() -> None:
    project = settings()["project"]
    named = project["scripts"] | project["entry-points"]["stoop.commands"]
    for name, value in named.items():
        assert callable(EntryPoint(name, value, "").load())


def test_a_producer_needs_no_torch() -> None:
    script = "import sys, stoop.cli.app; print([m for m in ('torch', 'numpy', 'stoop_worker') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert seen.stdout.strip() == "[]"


def test_the_extras_build_on_each_other() -> None:
    extras = settings()["project"]["optional-dependencies"]
    assert "stoop[worker]" in extras["gpu"]
    assert "stoop[worker]" in extras["demo"]
    assert "stoop[exporter]" in extras["gateway"]
    assert "stoop[demo]" in extras["test"]


def test_the_changelog_begins_with_this_version() -> None:
    first = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert first is not None and first[1] == VERSION
