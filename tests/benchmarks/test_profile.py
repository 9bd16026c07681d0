import json
from pathlib import Path
from threading import Thread

import pytest
import torch

from benchmarks.engine import profile
from benchmarks.engine.profile import NvtxRanges, Recorder
from tests.benchmarks.conftest import Words


def test_it_records_the_ranges_of_the_thread_that_steps(tmp_path: Path) -> None:
    recorder = Recorder(skip=2, seconds=0.0)

    def step() -> None:
        for name in ("before", "inside", "after"):
            with torch.profiler.record_function(f"stoop.{name}"):
                torch.ones(2).sum()
            recorder()

    def steps() -> None:
        step()
        step()

    thread = Thread(target=steps)
    thread.start()
    thread.join()
    assert recorder.done
    recorder.write(tmp_path / "trace.json")
    names = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {name for name in names if str(name).startswith("stoop.")} == {"stoop.after"}


def test_it_profiles_the_engine(words: Words) -> None:
    load = ("--concurrency", "2", "--requests", "12", "--skip", "2", "--profile-seconds", "0.05")
    document = profile.main(words("direct", *load))
    assert (document["kind"], document["concurrency"]) == ("profile", 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to record")
def test_nvtx_ranges_without_a_gpu_are_refused_with_the_reason() -> None:
    with pytest.raises(SystemExit, match="--nvtx needs a GPU"):
        NvtxRanges(skip=1, seconds=0.0)
