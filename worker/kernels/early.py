# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
"""Kernels that start before the one ahead of them has ended, so that its end and their start overlap.

CUDA's programmatic dependent launch: a kernel's programs may start once all programs of the one ahead have called
`let_next_start`. Nothing that a kernel before has written is there, and nothing that it reads may be written, before
`wait` returns; it returns when the kernel ahead has ended and its writes can be seen. Every program calls `wait`, also
one that has nothing to do: so a kernel ends after the one ahead of it, and what is true of that one is true of all.

What was written before some kernel that was not launched early, and this one comes after, may be read before `wait`:
weights, and what a step is given.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from worker.kernels.backend import launches_early

__all__ = ["MOST_ROWS", "let_next_start", "options", "wait"]

MOST_ROWS = 16
"""Of more rows, a kernel's programs fill the device for longer, and those that start early are in their way."""


def options(device: torch.device, rows: int) -> dict[str, Any]:
    """Return what a launch for `rows` rows on `device` is told, of a kernel with the constexpr EARLY."""
    if rows <= MOST_ROWS and launches_early(device):
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Let the next kernel start once all programs of this one have come so far."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Wait until the kernels before have ended."""
    if EARLY:
        gdc_wait()
