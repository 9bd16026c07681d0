import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.engine.full_size import write_folder
from benchmarks.queue import through_queue
from benchmarks.queue.processes import cpu_seconds, descendants
from tests.benchmarks.conftest import Words


def test_jobs_go_through_the_queue(words: Words, tmp_path: Path) -> None:
    write_folder(tmp_path / "model", "tiny", device="cpu", dtype=torch.float32)
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps({"figures": [{"requests_per_second": 10.0}]}))
    given = ("--model", str(tmp_path / "model"), "--direct", str(alone), "--folder", str(tmp_path))
    document = through_queue.main([*words("direct", "--concurrency", "2", "--requests", "8"), *given])
    (figures,) = document["figures"]
    assert (figures["requests"], figures["cached_requests"]) == (8, 0)
    assert document["share_of_engine"] == pytest.approx(figures["requests_per_second"] / 10)
    # the kernel counts in ticks of 10 ms, and a tiny engine may need less than one
    assert document["front_cpu_ms_per_job"] > 0 <= document["engine_cpu_ms_per_job"]


def test_the_cpu_time_of_a_process_and_its_children() -> None:
    busy = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process.pid in descendants(os.getpid())
        assert 0.15 < cpu_seconds([process.pid]) < 2.0
        process.communicate()
