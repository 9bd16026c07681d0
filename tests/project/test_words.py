"""The project speaks of itself alone, in its own words."""

import re
from pathlib import Path

import pytest

from tests.project.modules import ROOT, modules

# Put together here, so that this file does not say them.
FORBIDDEN = [
    r"/(root|home)" + r"/\w",
    r"(?<![\w.])/wo" + r"rk\b",
    r"\bsha" + r"red/",
    r"pypi\." + r"org|python" + r"hosted|download\.py" + r"torch|registry\.npm" + r"js",
    r"(?i)\bissue " + r"#?\d",
    r"\bTO" + r"DO\b|\bFIX" + r"ME\b",
]
DRAWERS = re.compile(r"util|helper|manager|handler|common|misc")
TEXT = {".py", ".md", ".toml", ".lua", ".json", ".yml", ".yaml", ".conf", ".Dockerfile", ".sh", ""}
TOOLS = {"__pycache__", "node_modules"}
SKIPPED = {".git", "LICENSE", "demo-output", "build", "dist"}


def texts() -> list[Path]:
    """Every file of the project that holds text."""
    return [path for top in ROOT.iterdir() if _ours(top) for path in _files(top)]


def _ours(path: Path) -> bool:
    # what begins with a dot is a tool's, but for what the project itself keeps there
    kept = {".ci", ".gitignore", ".dockerignore"}
    return path.name not in SKIPPED and (not path.name.startswith(".") or path.name in kept)


def _files(top: Path) -> list[Path]:
    found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
    return [path for path in found if path.suffix in TEXT and TOOLS.isdisjoint(path.parts)]


@pytest.mark.parametrize("pattern", FORBIDDEN)
def test_no_file_says_what_is_nobodys_concern(pattern: str) -> None:
    said = re.compile(pattern)
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts()
        for match in said.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_there_are_no_drawers() -> None:
    paths = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {path for path in paths if DRAWERS.search(Path(path).name.lower())} == set()
    classes = {name for module in modules() for name in module.classes}
    assert {name for name in classes if DRAWERS.search(name.lower()) or name.endswith("Base")} == set()


def test_it_reads_the_projects_files() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {
        "README.md",
        "pyproject.toml",
        "Makefile",
        ".ci/run",
        "schemas/stoop_schemas/names.py",
        "schemas/README.md",
    } <= names
