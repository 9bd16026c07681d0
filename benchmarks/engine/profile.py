"""Profiles some seconds of a closed loop, to see where the GPU's time goes.

    python -m benchmarks.engine.profile direct --concurrency 64 --profile-seconds 3

    nsys profile --capture-range=cudaProfilerApi --cuda-graph-trace=node \\
        python -m benchmarks.engine.profile direct --model full3 --nvtx

Prints the GPU's time by stage, its largest kernels, and the share of the time without a kernel. Writes the Chrome trace
(gzip) and the figures into the folder $OUT. Profiling slows launches down: compare shares, not rates.
With --nvtx nothing is printed or written: Nsight Systems records the same seconds, and the stages are its NVTX ranges.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as Profiler

from benchmarks.engine.bench import Bench, add_flags, photos_of
from benchmarks.engine.trace import Stage, Times, read_trace
from benchmarks.engine.workloads import WORKLOADS
from benchmarks.figures import machine, write_json

__all__ = ["NvtxRanges", "Recorder", "main"]

_LARGEST = 6  # kernels shown of each stage
_CHECKED = 4


class _Seconds:
    """Begins at call `skip` and ends some seconds later, in the calling thread; ranges are recorded per thread."""

    def __init__(self, *, skip: int, seconds: float) -> None:
        self._skip = skip
        self._seconds = seconds
        self._began = 0.0
        self.done = False

    def __call__(self) -> None:
        """Count a step."""
        self._skip -= 1
        if self._skip == 0:
            self._begin()
            self._began = time.perf_counter()
        elif self._skip < 0 and not self.done and time.perf_counter() - self._began > self._seconds:
            self._end()
            self.done = True

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class Recorder(_Seconds):
    """Profiles the calling thread by torch's profiler."""

    def __init__(self, *, skip: int, seconds: float) -> None:
        super().__init__(skip=skip, seconds=seconds)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        with Profiler(activities=activities):
            pass  # the first profiler sets up the machinery, which takes long and needs the main thread
        self._profiler = Profiler(activities=activities)

    def write(self, path: Path) -> None:
        """Write the Chrome trace."""
        self._profiler.export_chrome_trace(str(path))

    def _begin(self) -> None:
        self._profiler.start()

    def _end(self) -> None:
        self._profiler.stop()


class NvtxRanges(_Seconds):
    """Marks the calling thread's stages as NVTX ranges, and lets Nsight Systems record meanwhile."""

    def __init__(self, *, skip: int, seconds: float) -> None:
        super().__init__(skip=skip, seconds=seconds)
        if not torch.cuda.is_available():
            raise SystemExit("--nvtx needs a GPU: Nsight Systems records CUDA")
        self._ranges = torch.autograd.profiler.emit_nvtx()  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        self._ranges.__enter__()  # type: ignore[no-untyped-call]

    def _end(self) -> None:
        self._ranges.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Profile, write, and print."""
    arguments = _parser().parse_args(argv)
    workload, load = WORKLOADS[arguments.workload], arguments.concurrency
    bench = Bench.of(arguments)
    wanted = range(_CHECKED + arguments.requests + 2 * load)
    photos = photos_of(map(workload.ask, wanted), arguments.photos, most=bench.held_images + 2 * load)
    bench.check(map(workload.ask, range(_CHECKED)), photos)
    asks = map(workload.ask, count(_CHECKED))
    recorder = (NvtxRanges if arguments.nvtx else Recorder)(skip=arguments.skip, seconds=arguments.profile_seconds)
    with bench.run(photos) as running:
        running.closed_loop(asks, load, most=load, seconds=arguments.seconds)
        running.step_hook = recorder
        running.closed_loop(asks, load, most=arguments.requests, seconds=arguments.seconds)
    if not recorder.done:
        raise SystemExit("the loop ended before the profiler did: raise --requests, or lower --profile-seconds")
    if isinstance(recorder, NvtxRanges):
        return {}
    times = _keep(recorder)
    document = {
        "kind": "profile",
        "workload": workload.name,
        "concurrency": load,
        **bench.settings,
        "machine": machine(arguments.device),
        "idle_share": times.idle_share,
        "wall_ms": times.wall / 1e3,
        "stages": {name: _figures(stage, times) for name, stage in times.stages.items()},
    }
    write_json(document, arguments.out, f"profile-{workload.name}")
    print("\n".join(_table(times)))
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="direct")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1000, help="most requests of the profiled loop")
    parser.add_argument("--profile-seconds", type=float, default=3.0)
    parser.add_argument("--nvtx", action="store_true", help="mark ranges for Nsight Systems instead")
    parser.add_argument("--skip", type=int, default=20, help="steps before the profiler starts")
    add_flags(parser)
    return parser


def _keep(recorder: Recorder) -> Times:
    """Read the trace, and keep it gzipped in the folder $OUT if that is set."""
    with tempfile.TemporaryDirectory(prefix="stoop-profile-") as name:
        path = Path(name) / "trace.json"
        recorder.write(path)
        written = path.read_bytes()
    if folder := os.environ.get("OUT"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "trace.json.gz").write_bytes(gzip.compress(written, compresslevel=5))
    return read_trace(json.loads(written)["traceEvents"])


def _figures(stage: Stage, times: Times) -> dict[str, Any]:
    largest = stage.kernels.most_common(_LARGEST)
    return {
        "launches": stage.launches,
        "kernel_ms": stage.busy / 1e3,
        "share_of_wall": stage.busy / times.wall if times.wall else 0.0,
        "copy_ms": stage.copies / 1e3,
        "largest": {name: microseconds / 1e3 for name, microseconds in largest},
    }


def _table(times: Times) -> list[str]:
    ordered = sorted(times.stages.items(), key=lambda named: -named[1].busy)
    lines = [
        f"{microseconds / 1e3:>10.2f} ms  {name}: {kernel[:100]}"
        for name, stage in ordered
        for kernel, microseconds in stage.kernels.most_common(_LARGEST)
    ]
    lines.append(f"{'stage':<10}{'launches':>10}{'kernels ms':>12}{'of wall':>9}{'copies ms':>11}")
    for name, stage in ordered:
        share = stage.busy / times.wall if times.wall else 0.0
        lines.append(f"{name:<10}{stage.launches:>10}{stage.busy / 1e3:>12.2f}{share:>9.1%}{stage.copies / 1e3:>11.2f}")
    return [*lines, f"wall {times.wall / 1e3:.1f} ms, no kernel in {times.idle_share:.1%} of it"]


if __name__ == "__main__":
    main()
