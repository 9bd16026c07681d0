"""One line of the table of figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figure", "table"]


@dataclass(frozen=True, slots=True)
class Figure:
    """The figure of one workload at one load, which is the number of requests in flight.

    `p50_ms` is the median latency of a request, or of a step where `unit` is tok/s. `details` go to the file alone.
    """

    workload: str
    load: int
    value: float
    unit: str
    p50_ms: float | None = None
    details: dict[str, Any] = field(default_factory=dict)


def table(figures: Sequence[Figure]) -> list[str]:
    """Return a table."""
    lines = [f"{'workload':14}{'load':>6}{'figure':>12} {'unit':14}{'p50 ms':>9}"]
    for figure in figures:
        p50 = "-" if figure.p50_ms is None else f"{figure.p50_ms:.4g}"
        lines.append(f"{figure.workload:14}{figure.load:>6}{figure.value:>12.5g} {figure.unit:14}{p50:>9}")
    return lines
