"""Times RMS norm and the sums before it, at the widths of real decoders, bfloat16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.rms_norm import add_rms_norm, rms_norm_add_rms_norm
from stoop_worker.kernels.rms_norm.kernel import add_rms_norm as launch

__all__ = ["alternatives", "rows"]

EPSILON = 1e-6
CASES = [(1, 2048), (64, 2048), (64, 2560), (64, 3072), (8000, 2048), (8000, 3072)]


def torch_calls(x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor) -> tuple[Tensor, Tensor]:
    """Do the same with torch's own functions."""
    for other in added:
        x_TC = x_TC + other
    return x_TC, functional.rms_norm(x_TC, x_TC.shape[-1:], weight_C, EPSILON)


def measure(count: int, width: int, row_warps: int | None = None) -> Row:
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    x, added, weight = made(count, width), (made(count, width),), made(width)
    if row_warps is None:
        ours = partial(add_rms_norm, x, added, weight, epsilon=EPSILON)
    else:
        ours = partial(launch, x, added, weight, epsilon=EPSILON, row_warps=row_warps)
    theirs = partial(torch_calls, x, added, weight)
    check(ours()[1], theirs()[1], 1e-2)
    ours_us, theirs_us = (
        microseconds_captured([call] * 24) if count <= 128 else microseconds(call) for call in (ours, theirs)
    )
    name = "add, RMS norm" + ("" if row_warps is None else f", {row_warps} warps")
    rate = f"{count * width * 8 / ours_us / 1e6:.2f} TB/s"
    return Row(name, f"{count} x {width}, 1 added", ours_us, theirs_us, "torch, one by one", rate)


def measure_two(count: int, width: int) -> Row:
    """Time the norm of a block's output, the sum with it, and the norm of the sum."""
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    x, added, weights = made(count, width), made(count, width), (made(width), made(width))
    ours = partial(rms_norm_add_rms_norm, x, added, weights, epsilon=EPSILON)

    def theirs() -> Tensor:
        normed = functional.rms_norm(added, (width,), weights[0], EPSILON)
        return torch_calls(x, (normed,), weights[1])[1]

    check(ours()[1], theirs(), 2e-2)
    ours_us, theirs_us = microseconds_captured([ours] * 24), microseconds_captured([theirs] * 24)
    rate = f"{count * width * 8 / ours_us / 1e6:.2f} TB/s"
    return Row("RMS norm, add, RMS norm", f"{count} x {width}", ours_us, theirs_us, "torch, one by one", rate)


def rows() -> list[Row]:
    """Return decodes and prefills, and batches of texts with a norm on both sides of a block."""
    return [measure(*case) for case in CASES] + [measure_two(count, 768) for count in (32, 8192)]


def alternatives() -> list[Row]:
    """Return other numbers of warps per row."""
    return [measure(*case, row_warps) for case in CASES for row_warps in (1, 2, 4, 8)]
