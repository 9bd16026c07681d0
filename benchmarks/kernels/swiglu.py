"""Times SwiGLU between the products of an MLP, at the widths of real decoders, bfloat16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.swiglu import swiglu

__all__ = ["rows"]

CASES = [(1, 8192), (64, 8192), (64, 9728), (8000, 8192)]


def torch_calls(gate_up_TN: Tensor) -> Tensor:
    """Do the same with torch's own functions."""
    gate_TF, up_TF = gate_up_TN.chunk(2, dim=-1)
    return functional.silu(gate_TF) * up_TF


def measure(count: int, columns: int) -> Row:
    x = torch.randn(count, 2 * columns, device="cuda", dtype=torch.bfloat16)
    check(swiglu(x), torch_calls(x), 1e-2)
    ours, theirs = partial(swiglu, x), partial(torch_calls, x)
    ours_us, theirs_us = (
        microseconds_captured([call] * 24) if count <= 128 else microseconds(call) for call in (ours, theirs)
    )
    rate = f"{count * columns * 6 / ours_us / 1e6:.2f} TB/s"
    return Row("SwiGLU", f"{count} x {columns}", ours_us, theirs_us, "torch, one by one", rate)


def rows() -> list[Row]:
    """Return decodes and prefills."""
    return [measure(*case) for case in CASES]
