# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
"""Kernels that start before the one ahead of them has ended, so that its end and their start overlap.

CUDA's programmatic dependent launch: a kernel's programs may start once all programs of the one ahead have called
`let_next_start`. Nothing that a kernel before has written is there, and nothing that it reads may be written, before
`wait` returns; it returns when the kernel ahead has ended and its writes can be seen. Every program calls `wait`, also
one that has nothing to do: so a kernel ends after the one ahead of it, and what is true of that one is true of all.

Weights are written long before, and may be read, or fetched to the L2 cache, before `wait`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from worker.kernels.backend import launches_early

__all__ = ["fetch_lines", "fetch_stretches", "let_next_start", "options", "wait"]


def options(device: torch.device) -> dict[str, Any]:
    """Return what a launch on `device` is told, of a kernel with the constexpr EARLY."""
    return {"EARLY": True, "launch_pdl": True} if launches_early(device) else {"EARLY": False}


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


@triton.jit
def fetch_lines(ptrs):
    """Fetch the 128 bytes around each pointer to the L2 cache; waits for nothing."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; // $0", "=r,l", [ptrs.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def fetch_stretches(ptrs, count):
    """Fetch `count` bytes from each pointer on to the L2 cache, both multiples of 16; waits for nothing."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; // $0",
        "=r,l,r",
        [ptrs.to(tl.int64), tl.full(ptrs.shape, count, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
