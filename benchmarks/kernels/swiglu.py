"""Times SwiGLU and GeGLU between the products of an MLP, at the widths of real models, bfloat16."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.swiglu import geglu, swiglu

__all__ = ["rows"]

CASES = [(1, 8192), (64, 8192), (64, 9728), (8000, 8192)]
GEGLU_CASES = [(32, 1152), (8192, 1152)]  # embeddinggemma
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "SwiGLU": functional.silu,
    "GeGLU": partial(functional.gelu, approximate="tanh"),
}


def torch_calls(gate_up_TN: Tensor, name: str) -> Tensor:
    """Do the same with torch's own functions."""
    gate_TF, up_TF = gate_up_TN.chunk(2, dim=-1)
    return ACTIVATIONS[name](gate_TF) * up_TF


def measure(count: int, columns: int, name: str = "SwiGLU") -> Row:
    x = torch.randn(count, 2 * columns, device="cuda", dtype=torch.bfloat16)
    kernel = swiglu if name == "SwiGLU" else geglu
    check(kernel(x), torch_calls(x, name), 1e-2)
    ours, theirs = partial(kernel, x), partial(torch_calls, x, name)
    ours_us, theirs_us = (
        microseconds_captured([call] * 24) if count <= 128 else microseconds(call) for call in (ours, theirs)
    )
    rate = f"{count * columns * 6 / ours_us / 1e6:.2f} TB/s"
    return Row(name, f"{count} x {columns}", ours_us, theirs_us, "torch, one by one", rate)


def rows() -> list[Row]:
    """Return decodes and prefills, and batches of texts."""
    return [measure(*case) for case in CASES] + [measure(*case, "GeGLU") for case in GEGLU_CASES]
