"""One line of the table of kernels, and the timing behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Row", "check", "microseconds", "microseconds_captured", "print_table"]


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel at one shape beside the library call that it replaces; `unit_rate` is ours, such as "3.71 TB/s"."""

    name: str
    shape: str
    ours_us: float
    library_us: float | None
    library: str
    unit_rate: str


def check(found: Tensor, expected: Tensor, bound: float) -> None:
    """Raise `ValueError` if an answer is not finite, or differs from the expected one by over `bound` of its norm."""
    found, expected = found.double(), expected.double()
    error = ((found - expected).norm() / expected.norm()).item()
    if not error <= bound:
        raise ValueError(f"the answer is off by {error:.2e} of its norm; at most {bound:.0e} is right")


def microseconds(call: Callable[[], object]) -> float:
    """Return the median time of a call whose inputs are not in the cache."""
    from triton.testing import do_bench  # type: ignore[import-untyped]

    return float(do_bench(call, warmup=50, rep=200, return_mode="median")) * 1e3


def microseconds_captured(calls: Sequence[Callable[[], object]]) -> float:
    """Return the mean time of one of several calls, replayed one after the other in a CUDA graph.

    With one call per layer of a model, each on its own memory, none finds its inputs in the cache.
    """
    from triton.testing import do_bench_cudagraph

    def run() -> None:
        for call in calls:
            call()

    run()
    torch.cuda.synchronize()
    return float(do_bench_cudagraph(run, rep=40, return_mode="median")) * 1e3 / len(calls)


def print_table(rows: Sequence[Row]) -> None:
    """Print rows as a table: microseconds of ours and of the library, the speedup, and our rate."""
    print(f"{'kernel':<34} {'shape':<38} {'us':>9} {'library us':>10} {'ratio':>6} {'rate':>13}  library")
    for row in rows:
        theirs = f"{row.library_us:10.1f} {row.library_us / row.ours_us:6.2f}" if row.library_us else f"{'':17}"
        print(f"{row.name:<34} {row.shape:<38} {row.ours_us:9.1f} {theirs} {row.unit_rate:>13}  {row.library}")
