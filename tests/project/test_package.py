"""What `pip install` brings: the three packages with all they read at run time, and no more."""

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.project.modules import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_wheel_has_every_file_of_the_packages(wheel: set[str]) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in ("schemas", "producer", "worker")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= wheel
    assert {path for path in ours if path.endswith(".lua")}, "the scripts travel with the code"
    assert {"schemas/json/job.schema.json", "worker/py.typed"} <= ours


def test_the_wheel_has_nothing_else(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel} == {"schemas", "producer", "worker", "stoop-0.1.0.dist-info"}


def test_every_entry_point_can_be_loaded() -> None:
    project = settings()["project"]
    named = project["scripts"] | project["entry-points"]["stoop.commands"]
    for name, value in named.items():
        assert callable(EntryPoint(name, value, "").load())


def test_a_producer_needs_no_torch() -> None:
    script = "import sys, producer, producer.cli; print([m for m in ('torch', 'numpy', 'worker') if m in sys.modules])"
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert seen.stdout.strip() == "[]"


def test_the_extras_build_on_each_other() -> None:
    extras = settings()["project"]["optional-dependencies"]
    assert "stoop[worker]" in extras["gpu"]
    assert "stoop[worker]" in extras["demo"]
    assert "stoop[demo]" in extras["test"]
