"""The demo itself: real servers, a real worker process, the real engine on the bundled model."""

import io
import os
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from stoop.demo import run_demo
from stoop.demo.child_server import EmbeddedServerError
from stoop.demo.worker_process import find_model

pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("STOOP_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left_behind(folder: Path) -> list[str]:
    """Return the remaining files of the demo's own folder, and the processes that still run in it."""
    running = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command:
            running.append(command.decode())
    return [*running, *(str(path) for path in folder.glob("stoop-demo-*"))]


def test_every_job_completes_and_nothing_is_left_behind(tmp_path: Path) -> None:
    out = io.StringIO()
    assert run_demo(tmp_path / "out", console=Console(file=out, width=160))
    assert "29 of 29 jobs completed" in out.getvalue()
    assert "jobs/s" in out.getvalue()
    assert "29 of 29 answers are right" in out.getvalue()
    assert "17 of 17 recordings and texts are right" in out.getvalue()
    assert len(list((tmp_path / "out").glob("*.png"))) == 29, "one for each job with an image, and the montage"
    assert left_behind(tmp_path) == []


def test_a_worker_that_cannot_start_is_reported_with_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match="no-such-model"):
        run_demo(tmp_path / "out", str(tmp_path / "no-such-model"), console=Console(file=io.StringIO()))
    assert left_behind(tmp_path) == []


def test_the_models_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_model(None) == find_model("demo")
    for name in ("demo", "demo-hearing", "demo-embedding"):
        assert (Path(find_model(name)) / "config.json").is_file()
    assert find_model("other") == "other"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo-hearing").mkdir()
    assert find_model("demo-hearing") == "demo-hearing", "a folder of the caller's wins"
