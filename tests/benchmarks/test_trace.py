from typing import Any

import pytest

from benchmarks.engine.trace import read_trace


def event(cat: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": args}


TRACE = [
    {"ph": "M", "name": "process_name"},
    event("user_annotation", "stoop.prefill", 0, 100),
    event("user_annotation", "stoop.vision", 10, 20),
    event("user_annotation", "of somebody else", 12, 2),
    event("cuda_runtime", "cudaLaunchKernel", 13, 1, correlation=1),
    event("cuda_driver", "cuLaunchKernel", 50, 1, correlation=2),
    event("cuda_runtime", "cudaGraphLaunch", 200, 1, correlation=3),
    event("cuda_runtime", "cudaLaunchKernel", 300, 1, correlation=4),
    event("cuda_runtime", "cudaMemcpyAsync", 60, 1, correlation=5),
    event("kernel", "gemm", 1000, 40, correlation=1),
    event("kernel", "attention", 1020, 40, correlation=2),
    event("kernel", "one", 1100, 10, correlation=3),
    event("kernel", "two", 1110, 10, correlation=3),
    event("kernel", "stray", 1190, 10, correlation=4),
    event("gpu_memcpy", "Memcpy HtoD", 1070, 20, correlation=5),
]


def test_a_kernel_belongs_to_where_it_was_launched() -> None:
    stages = read_trace(TRACE).stages
    assert {name: dict(stage.kernels) for name, stage in stages.items()} == {
        "vision": {"gemm": 40},
        "prefill": {"attention": 40},
        "decode": {"one": 10, "two": 10},
        "other": {"stray": 10},
    }
    assert stages["prefill"].copies == 20


def test_kernels_that_overlap_keep_the_device_busy_once() -> None:
    times = read_trace(TRACE)
    assert (times.wall, times.busy) == (200, 60 + 20 + 10)
    assert times.idle_share == pytest.approx(0.55)


def test_a_launch_on_another_thread_is_in_no_range_of_this_one() -> None:
    elsewhere = [{**each, "tid": 2} if each.get("cat") == "cuda_driver" else each for each in TRACE]
    assert "prefill" not in {name for name, stage in read_trace(elsewhere).stages.items() if stage.launches}


def test_a_trace_without_kernels_is_idle() -> None:
    assert read_trace([]).idle_share == 1.0
