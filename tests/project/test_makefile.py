"""`make` sets itself up: once, on a machine that has only Python, and with a message about missing programs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.modules import ROOT

MAKE = shutil.which("make")
TOOLS = ("bash", "sed", "touch", "awk", "rm", "mkdir", "chmod", "cat")

# Stands for a good Python: its `venv` makes an environment whose programs note down how they were called.
PYTHON = """#!/bin/bash
[ "$1" = -c ] && exit 0
mkdir -p .venv/bin
for name in pip stoop pytest; do
  printf '#!/bin/bash\\necho "%s $*" >> calls\\necho "Collecting torch"\\n' $name > .venv/bin/$name
  chmod +x .venv/bin/$name
done
echo "python $*" >> calls
"""

OLD_PYTHON = """#!/bin/bash
[ "$1" = --version ] && echo "Python 3.9.2" && exit 0
exit 1
"""

pytestmark = pytest.mark.skipif(MAKE is None, reason="no make on this machine")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The Makefile alone, on a machine with a few tools and only the Python that a test puts in `tools`."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    return tmp_path


def put_python(clone: Path, script: str) -> None:
    python = clone / "tools" / "python3"
    python.write_text(script)
    python.chmod(0o755)


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert MAKE is not None
    environment = {"PATH": str(clone / "tools")}
    return subprocess.run([MAKE, *arguments], cwd=clone, env=environment, capture_output=True, text=True)


def calls(clone: Path) -> list[str]:
    noted = (clone / "calls").read_text().splitlines()
    (clone / "calls").unlink()
    return noted


def test_help_names_every_target(clone: Path) -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert re.findall(r"^  make (\S+) +\S", make(clone).stdout, flags=re.MULTILINE) == phony[1].split()


def test_the_first_run_sets_up_and_the_next_does_not(clone: Path) -> None:
    put_python(clone, PYTHON)
    first = make(clone, "demo")
    assert first.returncode == 0, first.stderr
    assert "torch" in first.stdout, "the slow step says what it does"
    assert calls(clone) == [
        "python -m venv --clear .venv",
        "pip install --disable-pip-version-check --editable .[demo]",
        "stoop demo",
    ]
    assert make(clone, "demo").returncode == 0
    assert calls(clone) == ["stoop demo"]


def test_a_changed_project_is_installed_again(clone: Path) -> None:
    put_python(clone, PYTHON)
    make(clone, "demo")
    calls(clone)
    marker = (clone / ".venv" / ".demo").stat().st_mtime
    os.utime(clone / "pyproject.toml", (marker + 10, marker + 10))
    make(clone, "demo")
    assert [call.split()[0] for call in calls(clone)] == ["pip", "stoop"]


def test_the_packages_of_the_tests_are_enough_for_the_demo(clone: Path) -> None:
    put_python(clone, PYTHON)
    make(clone, "test")
    calls(clone)
    make(clone, "demo")
    assert calls(clone) == ["stoop demo"]


def test_an_interrupted_environment_is_made_again(clone: Path) -> None:
    put_python(clone, PYTHON)
    make(clone, "demo")
    calls(clone)
    (clone / ".venv" / "bin" / "pip").unlink()
    make(clone, "demo")
    assert calls(clone)[0] == "python -m venv --clear .venv"


def test_a_failed_install_fails_and_is_tried_again(clone: Path) -> None:
    put_python(clone, PYTHON)
    make(clone, "demo")
    pip = clone / ".venv" / "bin" / "pip"
    (clone / ".venv" / ".demo").unlink()
    pip.write_text("#!/bin/bash\nexit 1\n")
    calls(clone)
    assert make(clone, "demo").returncode != 0
    assert not (clone / ".venv" / ".demo").exists()
    assert not (clone / "calls").exists()


def test_an_old_python_is_refused_with_advice(clone: Path) -> None:
    put_python(clone, OLD_PYTHON)
    refused = make(clone, "demo")
    assert refused.returncode != 0
    assert "Python 3.11 or newer" in refused.stderr
    assert "Python 3.9.2" in refused.stderr
    assert "PYTHON=" in refused.stderr
    assert not (clone / ".venv").exists()


def test_a_newer_python_is_found_beside_an_old_one(clone: Path) -> None:
    put_python(clone, OLD_PYTHON)
    newer = clone / "tools" / "python3.12"
    newer.write_text(PYTHON)
    newer.chmod(0o755)
    assert make(clone, "demo").returncode == 0
    assert calls(clone)[0] == "python -m venv --clear .venv"


def test_the_gpu_tests_need_pytest_and_none_of_its_plugins() -> None:
    assert MAKE is not None
    asked = [MAKE, "-n", "--no-print-directory", "gpu", f"PYTHON={sys.executable}"]
    # not as a part of the make that may run these tests
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True)
    command = [
        *shlex.split(done.stdout),
        "--collect-only",
        "-p",
        "no:asyncio",
        "-p",
        "no:timeout",
        "-p",
        "no:pytest_cov",
        "-p",
        "no:xdist",
    ]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout
