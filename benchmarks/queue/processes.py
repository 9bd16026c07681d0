"""The CPU time of processes, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cpu_seconds", "descendants"]


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


def _fields(path: Path) -> list[str]:
    """Return the fields after the program's name, which may contain anything; none if the process has just ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50
