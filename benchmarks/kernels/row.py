"""One line of the table of kernels, and the timing behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.kernels.ceiling import ceiling_of

__all__ = ["Row", "check", "least_us", "microseconds", "microseconds_captured", "print_table"]


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel at one shape beside the library call that it replaces; `unit_rate` is ours, such as "3.71 TB/s".

    `least_us` is the time at the ceilings of the device, if they are known.
    """

    name: str
    shape: str
    ours_us: float
    library_us: float | None
    library: str
    unit_rate: str
    least_us: float | None = None

    @property
    def share(self) -> str:
        """The share of the ceiling that our kernel reaches, such as "86%"."""
        return "" if self.least_us is None else f"{self.least_us / self.ours_us:.0%}"


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


def least_us(*, bytes: float, operations: float = 0.0, fp8: bool = False) -> float | None:
    """Return the least time of a kernel on this device; see `Ceiling.least_us`."""
    ceiling = ceiling_of(torch.cuda.get_device_name())
    return None if ceiling is None else ceiling.least_us(bytes=bytes, operations=operations, fp8=fp8)


def print_table(rows: Sequence[Row]) -> None:
    """Print rows as a table: microseconds of ours and the library's, the speedup, our rate, and the ceiling's share."""
    heads = f"{'us':>9} {'library us':>10} {'ratio':>6} {'rate':>13} {'ceiling':>7}  library"
    print(f"{'kernel':<34} {'shape':<38} {heads}")
    for row in rows:
        theirs = f"{row.library_us:10.1f} {row.library_us / row.ours_us:6.2f}" if row.library_us else f"{'':17}"
        found = f"{row.ours_us:9.1f} {theirs} {row.unit_rate:>13} {row.share:>7}  {row.library}"
        print(f"{row.name:<34} {row.shape:<38} {found}")
