"""The CPU time of processes, from /proc, and the cores that they may use."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["cpu_seconds", "descendants", "on_cores", "shares", "worker_cpu", "worker_cpu_line"]

_LEAST_CORES = 4


def descendants(process: int) -> list[int]:
    """Return the descendants of a process."""
    parents = {int(path.parent.name): int(_fields(path)[1]) for path in Path("/proc").glob("[0-9]*/stat")}
    found: list[int] = []
    layer = [process]
    while layer := [child for child, parent in parents.items() if parent in layer]:
        found += layer
    return found


def cpu_seconds(processes: Iterable[int]) -> float:
    """Return the user and system time of all threads of these processes, since each started."""
    ticks = 0
    for process in processes:
        fields = _fields(Path(f"/proc/{process}/stat"))
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def worker_cpu(front: float, engine: float, jobs: int) -> dict[str, float]:
    """Return the CPU time for a job, in milliseconds, from the seconds of a worker's two processes for all jobs."""
    return {"front_cpu_ms_per_job": 1e3 * front / jobs, "engine_cpu_ms_per_job": 1e3 * engine / jobs}


def worker_cpu_line(document: Mapping[str, Any]) -> str:
    """Return the line about the figures of `worker_cpu` in a document."""
    front, engine = document["front_cpu_ms_per_job"], document["engine_cpu_ms_per_job"]
    return f"worker CPU a job: front {front:.2f} ms, engine {engine:.2f} ms, both {front + engine:.2f} ms"


def shares(cores: Sequence[int], workers: int) -> tuple[list[int], list[list[int]]]:
    """Return the cores for the load and those for each worker: a quarter, and equal parts of the rest.

    With fewer than four cores for a worker, all share all.
    """
    if len(cores) < _LEAST_CORES * workers:
        return list(cores), [list(cores)] * workers
    own = len(cores) // 4
    size = (len(cores) - own) // workers
    return list(cores[:own]), [list(cores[own + size * part : own + size * (part + 1)]) for part in range(workers)]


@contextlib.contextmanager
def on_cores(cores: Iterable[int]) -> Iterator[None]:
    """Keep this thread, and the threads and processes that it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _fields(path: Path) -> list[str]:
    """Return the fields after the program's name, which may contain anything; none if the process has just ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50
