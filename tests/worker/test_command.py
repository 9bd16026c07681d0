import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stoop_worker.command import command
from stoop_worker.config import WorkerConfig


def run(*arguments: str, **variables: str):
    app = typer.Typer()
    app.command("worker")(command)
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb", **variables}).invoke(app, list(arguments))


def test_every_field_of_the_configuration_is_a_flag() -> None:
    shown = run("--help").output
    for name in WorkerConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in shown
    assert "(default: 16)" in shown and "(default: )" not in shown


def test_a_wrong_value_ends_with_2_and_one_line_that_names_it() -> None:
    result = run("--model", "m", "--pages", "none")
    assert result.exit_code == 2
    assert "--pages (STOOP_PAGES)" in result.output
    assert "Traceback" not in result.output


def test_without_a_model_the_error_names_the_option() -> None:
    result = run()
    assert result.exit_code == 2
    assert "--model (STOOP_MODEL): give it" in result.output


def test_a_ready_file_that_cannot_be_written_is_reported_before_anything_is_loaded(tmp_path) -> None:
    result = run("--model", "m", "--ready-file", str(tmp_path / "absent" / "ready"))
    assert result.exit_code == 2
    assert "--ready-file (STOOP_READY_FILE)" in result.output


def test_a_ready_file_that_a_crash_left_is_removed(tmp_path) -> None:
    stale = tmp_path / "ready"
    stale.touch()
    run("--model", str(tmp_path), "--device", "cpu", "--ready-file", str(stale), "--log-level", "error")
    assert not stale.exists()


def test_the_ready_file_does_not_exist_for_a_moment_while_a_worker_starts(tmp_path) -> None:
    ready, made = tmp_path / "ready", tmp_path / "made"
    ready.symlink_to(made)  # whatever is written to the ready file stays here, even if the ready file is removed again
    run("--model", str(tmp_path), "--device", "cpu", "--ready-file", str(ready), "--log-level", "error")
    assert not made.exists()


def test_gpus_that_cannot_be_are_refused_before_anything_is_started() -> None:
    result = run("--model", "m", "--gpus", "first")
    assert result.exit_code == 2
    assert "--gpus (STOOP_GPUS): 'first' is neither a number nor a UUID" in result.output


def test_a_folder_without_a_model_is_named_and_signal_handlers_are_restored(tmp_path) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = run("--model", str(tmp_path), "--device", "cpu", "--log-level", "error")
    assert result.exit_code == 2
    assert str(tmp_path) in result.output
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the threads of a process are counted in /proc")
def test_numpy_starts_no_threads_in_the_front_and_may_in_the_engine() -> None:
    program = (
        "import os, stoop_worker.command as command; command._load_numpy(); import numpy;"
        "numpy.ones((600, 600)) @ numpy.ones((600, 600));"
        "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "False"]
