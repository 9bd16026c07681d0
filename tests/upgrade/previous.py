"""The previous release: its wheel, built from a revision of git and installed into a folder of its own.

Its dependencies are those of today's environment. The scripted worker of its tests comes along, because a release ships
no engine without a model.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.parser import HeaderParser
from pathlib import Path

__all__ = ["Release", "install", "last_of_previous_version"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Release:
    """One release; `package` has its client, `environment` the variables with which its processes find it."""

    name: str
    version: str
    package: str = "stoop"
    environment: Mapping[str, str] = field(default_factory=dict)


def last_of_previous_version() -> str:
    """Return the commit before the one that last changed the version in pyproject.toml."""
    changed = _git("log", "-1", "--format=%H", "-G^version = ", "--", "pyproject.toml").strip()
    return f"{changed}^"


def install(revision: str, folder: Path) -> Release:
    """Install a revision into `folder`, unless it is there already; exits if git has no such revision."""
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}").strip()
    root = folder / commit
    if not root.exists():
        half = folder / f"{commit}.half"
        shutil.rmtree(half, ignore_errors=True)
        _build(commit, half)
        half.rename(root)
    [metadata] = (root / "site").glob("stoop-*.dist-info/METADATA")
    version = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))["Version"]
    package = "stoop" if (root / "site" / "stoop").exists() else "producer"
    paths = os.pathsep.join(str(root / part) for part in ("site", "program"))
    # without the folder of the program on the path, which would bring today's packages back
    return Release(commit[:7], version, package, {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"})


def _build(commit: str, root: Path) -> None:
    source = root / "source"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    _quiet(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(root), cwd=source)
    [wheel] = root.glob("*.whl")
    site = str(root / "site")
    _quiet(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site, str(wheel), cwd=root)
    shutil.copytree(source / "tests", root / "program" / "tests")
    shutil.rmtree(source)


def _quiet(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        problem = done.stderr.strip()
        sys.exit(f"git {' '.join(words)}: {problem}\nA shallow clone lacks it: git fetch --unshallow, or set PREVIOUS")
    return done.stdout
