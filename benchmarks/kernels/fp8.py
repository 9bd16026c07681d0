"""Times the rounding of bfloat16 rows to fp8, alone and after a tanh-GELU."""

from functools import partial

import torch
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds
from stoop_worker.kernels import fp8
from stoop_worker.kernels.fp8 import reference

__all__ = ["rows"]

SHAPES = [(6561, 1152), (20412, 4304), (5920, 8192)]


def measure(count: int, width: int) -> list[Row]:
    x = torch.randn(count, width, device="cuda", dtype=torch.bfloat16)
    found = []
    for name, ours, plain, exact in (
        ("rows to fp8", fp8.quantise_rows, reference.quantise_rows, x),
        ("GELU, fp8", fp8.gelu_fp8, reference.gelu_fp8, functional.gelu(x.float(), approximate="tanh")),
    ):
        values, scale = ours(x)
        check(values.float() * scale, exact.float(), 5e-2)
        ours_us = microseconds(partial(ours, x))
        rate = f"{3 * x.numel() / ours_us / 1e6:.2f} TB/s"
        library_us = microseconds(partial(plain, x))
        found.append(Row(name, f"{count} x {width}", ours_us, library_us, "torch, one by one", rate))
    return found


def rows() -> list[Row]:
    """Return rows as quantised by the encoder and by a prefill."""
    return [row for shape in SHAPES for row in measure(*shape)]
