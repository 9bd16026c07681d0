"""The engine's figures as its process sends them to the metrics."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Figures", "Histogram"]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values by size, and their sum: `counts[i]` are at most `edges[i]`, and the last count is of larger
    ones.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...] = ()
    sum: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            object.__setattr__(self, "counts", (0,) * (len(self.edges) + 1))

    def with_value(self, value: float) -> "Histogram":
        """Add one value."""
        at = bisect_left(self.edges, value)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Histogram(self.edges, counts, self.sum + value)


Figures = Mapping[str, float | Histogram]
"""Figures by name. Those that end in `_total` and histograms start from 0 in each process of the engine."""
