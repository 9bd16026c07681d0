import json
from pathlib import Path

import pytest

from benchmarks.families import step_times
from benchmarks.families.step_times import KernelTimes, kernels_of

SMALL = ["--device", "cpu", "--dtype", "fp32", "--concurrency", "3", "--engine", "max_context=2048"]


def test_each_part_of_the_thread_is_timed_in_all_kinds_of_steps(tmp_path: Path) -> None:
    out = tmp_path / "times.json"
    step_times.main(["llama-1b-tiny", *SMALL, "--out", str(out)])
    kinds = {name: kind["thread"] for name, kind in json.loads(out.read_text())["kinds"].items()}
    # a CPU captures no graphs, and its steps do not begin before the last one is read
    unused = {"look ahead", "launches of graphs"}
    assert {name: {part for part, spent in parts.items() if not spent} for name, parts in kinds.items()} == {
        "decode": unused | {"masks"},
        "free text": unused | {"masks"},
        "JSON": unused,
    }


def test_only_a_model_that_decodes_has_steps() -> None:
    with pytest.raises(SystemExit, match="bge-m3-tiny does not decode"):
        step_times.main(["bge-m3-tiny", *SMALL])


def test_idle_time_counts_for_the_kernel_that_ends_it() -> None:
    spans = [("add", 14.0, 15.0), ("product", 0.0, 10.0), ("copy", 2.0, 12.0), ("product", 20.0, 24.0)]
    assert kernels_of(spans, steps=2) == [
        KernelTimes("product", launches=1.0, busy=7.0, idle=2.5),
        KernelTimes("copy", launches=0.5, busy=5.0, idle=0.0),
        KernelTimes("add", launches=0.5, busy=0.5, idle=1.0),
    ]
