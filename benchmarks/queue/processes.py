"""The CPU time of processes, from /proc, and the cores that they may use."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["cpu_seconds", "descendants", "on_cores", "shares"]

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
    """Keep this thread, and what it starts, on these cores."""
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
