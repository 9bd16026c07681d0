import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.engine.check import WrongAnswers
from benchmarks.families import host_work
from stoop_worker.engine.device.decode_rows import LaidRows

SMALL = ["--model", "llama-1b-tiny", "--batch", "5", "--rounds", "1"]


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Undo the settings that the benchmark makes for its whole process, which other tests share here."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    gc.unfreeze()


def test_every_part_of_a_step_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    host_work.main([*SMALL, "--out", str(out)])
    free, form = json.loads(out.read_text())["microseconds"].values()
    assert free.keys() == form.keys()
    assert [part for part, spent in free.items() if not spent] == ["masks"]
    assert all(form.values())


def test_nothing_is_timed_if_a_step_reads_other_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slots = LaidRows._slots
    monkeypatch.setattr(LaidRows, "_slots", lambda *rows: slots(*rows) ^ 1)
    with pytest.raises(WrongAnswers):
        host_work.main([*SMALL, "--out", str(tmp_path / "figures.json")])
