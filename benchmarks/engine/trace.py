"""Sums up a profiler's trace as GPU time per stage.

The engine wraps its stages in ranges named `stoop.<stage>`; a kernel belongs to the innermost range in which the host
launched it. A CUDA graph launched outside of any range counts as decode.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Stage", "Times", "read_trace"]

_RANGE: Final = "stoop."
_ON_DEVICE: Final = {"kernel", "gpu_memset", "gpu_memcpy"}
_RUNTIME: Final = {"cuda_runtime", "cuda_driver"}

Event = Mapping[str, Any]


@dataclass(slots=True)
class Stage:
    """Microseconds on the device by kernel; copies to and from the host are separate."""

    launches: int = 0
    kernels: Counter[str] = field(default_factory=Counter)
    copies: float = 0.0

    @property
    def busy(self) -> float:
        """The microseconds of all kernels."""
        return sum(self.kernels.values())


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds: `wall` from the first kernel's begin to the last one's end, `busy` the part with any kernel."""

    wall: float
    busy: float
    stages: dict[str, Stage]

    @property
    def idle_share(self) -> float:
        """The part of the time in which no kernel ran."""
        return 1 - self.busy / self.wall if self.wall else 1.0


def read_trace(events: Iterable[Event]) -> Times:
    """Read the `traceEvents` of a Chrome trace."""
    whole = [event for event in events if event.get("ph") == "X"]
    launched = _stages_by_correlation(whole)
    stages: dict[str, Stage] = defaultdict(Stage)
    spans: list[tuple[float, float]] = []
    for event in whole:
        if event.get("cat") not in _ON_DEVICE:
            continue
        stage = stages[launched.get(event["args"].get("correlation"), "other")]
        if event["cat"] == "gpu_memcpy":
            stage.copies += event["dur"]
            continue
        stage.launches += 1
        stage.kernels[event["name"]] += event["dur"]
        spans.append((event["ts"], event["ts"] + event["dur"]))
    wall = max(end for _, end in spans) - min(begin for begin, _ in spans) if spans else 0.0
    return Times(wall, _union(spans), dict(stages))


def _stages_by_correlation(whole: Sequence[Event]) -> dict[int, str]:
    """Return the stage of every launch, by its correlation number, which its kernels share."""
    ranges = _ranges_by_thread(whole)
    found: dict[int, str] = {}
    for event in whole:
        if event.get("cat") not in _RUNTIME or "correlation" not in event.get("args", {}):
            continue
        stage = _innermost(ranges.get((event["pid"], event["tid"]), _Ranges()), event["ts"])
        if stage is None and "GraphLaunch" in event["name"]:
            stage = "decode"
        if stage is not None:
            found[event["args"]["correlation"]] = stage
    return found


@dataclass(slots=True)
class _Ranges:
    """The ranges of one thread, ordered by begin: (begin, end, stage)."""

    begins: list[float] = field(default_factory=list)
    all: list[tuple[float, float, str]] = field(default_factory=list)


def _ranges_by_thread(whole: Sequence[Event]) -> dict[tuple[Any, Any], _Ranges]:
    threads: dict[tuple[Any, Any], _Ranges] = defaultdict(_Ranges)
    for event in sorted(whole, key=lambda event: event["ts"]):
        if event.get("cat") == "user_annotation" and event["name"].startswith(_RANGE):
            ranges = threads[event["pid"], event["tid"]]
            ranges.begins.append(event["ts"])
            ranges.all.append((event["ts"], event["ts"] + event["dur"], event["name"].removeprefix(_RANGE)))
    return threads


def _innermost(ranges: _Ranges, moment: float) -> str | None:
    """Return the innermost range at a moment; ranges nest only a few deep."""
    last = bisect_right(ranges.begins, moment)
    for _, end, stage in reversed(ranges.all[max(0, last - 8) : last]):
        if moment <= end:
            return stage
    return None


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Return the length of the union of the spans."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
