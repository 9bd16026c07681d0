import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report

MACHINE = {"device": "a GPU", "processor": "a CPU", "cores": 2, "torch": "2.11", "date": "2026-01-02 03:04 UTC"}
TIMES = {"p50": 10.0, "p95": 20.0, "p99": 30.0}


def closed(rate: float, load: int) -> dict[str, Any]:
    times = dict.fromkeys(("latency", "ttft", "inter_token"), TIMES)
    counts = {"requests": 9, "requests_per_second": rate, "tokens_per_second": 3 * rate, "left": 0}
    return {"offered": load, **counts, **times}


def write(folder: Path) -> None:
    shared = {"workload": "direct", "dtype": "bf16", "machine": MACHINE, "engine": {"max_batch": 8}}
    stages = {"vision": {"launches": 4, "kernel_ms": 7.0, "share_of_wall": 0.7}}
    documents = [
        {"kind": "closed", **shared, "figures": [closed(20.0, 1), closed(61.5, 64)]},
        {"kind": "open", **shared, "figures": [closed(33.0, 34)]},
        {"kind": "profile", **shared, "concurrency": 64, "stages": stages, "idle_share": 0.25, "wall_ms": 10.0},
    ]
    for number, document in enumerate(documents):
        (folder / f"{number}.json").write_text(json.dumps(document))
    (folder / "other.json").write_text("[]")


def test_every_kind_gets_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    report.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.startswith("a GPU, 2 cores of a CPU, torch 2.11, 2026-01-02")
    assert "| direct (bf16, max_batch=8) | 64 | 61.5 | 184 | 10 / 20 / 30 | 10 / 20 | 10 / 30 |" in printed
    assert "| vision | 4 | 7.0 | 70.0% |" in printed
    assert "No kernel ran in 25.0% of 10 ms." in printed


def test_a_folder_without_figures_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no figures"):
        report.main([str(tmp_path)])


def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write(tmp_path)
    report.main([str(tmp_path), "--plots", str(tmp_path / "plots")])
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn == {"throughput.png", "latency.png", "latency-open.png"}
