"""The program of one worker is tied to its parent, and ends as a worker does."""

import os
import subprocess
import sys
from pathlib import Path

from tests.project.modules import ROOT

PATHS = os.pathsep.join(str(ROOT / name) for name in ("schemas", "producer", "worker"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS}
# the child holds the pipe of the parent's output until it has ended
CHILD = """
import pathlib, signal, sys
from stoop_worker.gpu_workers.program import tie_to
notes = pathlib.Path(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: (notes.write_text("drained"), sys.exit(0)))
tie_to(int(sys.argv[1]))
print("tied", flush=True)
signal.pause()
"""
PARENT = """
import os, subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.argv[2]])
"""


def test_it_drains_when_its_parent_is_killed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    command = [sys.executable, "-c", PARENT, CHILD, str(notes)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "tied\n"
        parent.kill()
        parent.stdout.read()
    assert notes.read_text() == "drained"


def test_it_does_not_start_for_a_parent_that_has_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, "1", str(tmp_path / "notes")]
    assert subprocess.run(command, env=ENVIRONMENT, capture_output=True).returncode == 1


def test_a_wrong_configuration_ends_it_with_2_and_a_line_that_names_the_gpu() -> None:
    command = [sys.executable, "-m", "stoop_worker.gpu_workers.program", str(os.getpid()), "7"]
    environment = {**ENVIRONMENT, "STOOP_MODEL": "m", "STOOP_PAGES": "none"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "on GPU 7: --pages (STOOP_PAGES)" in done.stderr
