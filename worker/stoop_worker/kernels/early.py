# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
"""Starts a kernel before the previous one has ended, so that the end of one and the start of the next overlap.

This is CUDA's programmatic dependent launch: a kernel's programs may start once every program of the previous kernel
has called `let_next_start`. `wait` returns when the previous kernel has ended and its writes are visible. Before that,
a program must not read a value that an earlier kernel writes, nor write one that it reads. Every program calls `wait`,
even if it has nothing to do. A kernel therefore ends after the previous one, and so after every earlier one. A kernel
that follows two others is launched plainly: it starts when both have ended.

A program may read these before `wait`: weights, the inputs of a step, and anything else that was written before an
earlier kernel which was not launched early. If the previous kernel's programs call `let_next_start` only after their
own `wait`, that includes everything written before the previous kernel.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from stoop_worker.kernels.backend import launches_early

__all__ = ["MOST_IN_LINE_ROWS", "MOST_ROWS", "let_next_start", "options", "wait"]

MOST_ROWS = 16
"""With more rows, a kernel's programs fill the device for longer, and programs that start early get in their way."""

MOST_IN_LINE_ROWS = 64
"""The same for a step whose kernels all start early, one after the other."""


def options(device: torch.device, rows: int, *, plainly: bool = False, most: int = MOST_ROWS) -> dict[str, Any]:
    """Return the launch options for up to `most` rows on `device`, for a kernel with the constexpr EARLY.

    A kernel that is launched `plainly` does not start early, but the next one may.
    """
    if rows <= most and launches_early(device):
        return {"EARLY": True, "launch_pdl": not plainly}
    return {"EARLY": False}


@triton.jit
def let_next_start(EARLY: tl.constexpr):
    """Let the next kernel start once all programs of this one have reached this call."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait(EARLY: tl.constexpr):
    """Wait until the previous kernels have ended."""
    if EARLY:
        gdc_wait()
