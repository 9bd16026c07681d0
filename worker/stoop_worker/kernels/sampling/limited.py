# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Shared parts of both kernels: a row's logits within its limits, floats by rank, the token at a share of weights.

A rank numbers the floats of 16 bits (bfloat16) or 32 bits by value, minus infinity first. A search for a float
therefore takes as many halvings as the rank has bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.sampling.limits import Limits

__all__ = ["Limited", "limited", "place_of", "value_of"]


@dataclass(frozen=True, slots=True)
class Limited:
    """Logits and their limits in the form of a launch: `arguments` in the order of `limited`, and its constants."""

    arguments: tuple[Tensor | int, ...]
    constants: Mapping[str, int]
    top_ks_B: Tensor | None

    @classmethod
    def of(cls, logits_BV: Tensor, limits: Limits) -> "Limited":
        """Gather the limits of the rows; the kernel never reads an absent one."""
        if logits_BV.stride(1) != 1:
            logits_BV = logits_BV.contiguous()
        suppressed_B2, masks_NW, mask_rows_B = limits.suppressed_B2, limits.masks_NW, limits.mask_rows_B
        if (masks_NW is None) != (mask_rows_B is None):
            raise ValueError("masks_NW and mask_rows_B must be given together")
        return cls(
            arguments=(
                logits_BV,
                logits_BV if suppressed_B2 is None else suppressed_B2.contiguous(),
                logits_BV if masks_NW is None else masks_NW,
                logits_BV if mask_rows_B is None else mask_rows_B.contiguous(),
                logits_BV.stride(0),
                0 if masks_NW is None else masks_NW.stride(0),
            ),
            constants={
                "V": logits_BV.shape[1],
                "SUPPRESSED": suppressed_B2 is not None,
                "MASKED": masks_NW is not None,
                "BITS": 16 if logits_BV.dtype == torch.bfloat16 else 32,
            },
            top_ks_B=None if limits.top_ks_B is None else limits.top_ks_B.contiguous(),
        )


@triton.jit
def limited(
    logits_ptr,
    suppressed_ptr,
    masks_ptr,
    mask_rows_ptr,
    stride,
    mask_stride,
    row,
    token,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return logits of a row as float32: minus infinity for forbidden ids and beyond the vocabulary."""
    x = tl.load(logits_ptr + row.to(tl.int64) * stride + token, mask=token < V, other=float("-inf")).to(tl.float32)
    if SUPPRESSED:
        first = tl.load(suppressed_ptr + 2 * row)
        second = tl.load(suppressed_ptr + 2 * row + 1)
        x = tl.where((token == first) | (token == second), float("-inf"), x)
    if MASKED:
        mask_row = tl.load(mask_rows_ptr + row).to(tl.int64)
        # without a mask no bits are read, because all ids of the row count as beyond them
        asked = tl.where(mask_row >= 0, token, V)
        word = tl.load(masks_ptr + mask_row * mask_stride + token // 32, mask=asked < V, other=-1)
        x = tl.where((word >> (token % 32)) & 1 == 0, float("-inf"), x)
    return x


@triton.jit
def value_of(rank, BITS: tl.constexpr):
    """Return the float32 of an int64 rank among floats of BITS bits; ranks beyond an infinity give the infinity."""
    if BITS == 16:
        inside = tl.minimum(tl.maximum(rank, 0x007F), 0xFF80)
        bits = tl.where(inside >= 0x8000, inside - 0x8000, 0xFFFF - inside) << 16
    else:
        inside = tl.minimum(tl.maximum(rank, 0x007FFFFF), 0xFF800000)
        bits = tl.where(inside >= 0x80000000, inside - 0x80000000, 0xFFFFFFFF - inside)
    return bits.to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def place_of(weight, sums, passed, target, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the index in (ROWS, COLS) weights at which their running sum passes the target.

    `sums` are the sums of the rows, and `passed` is their running sum.
    """
    line = tl.arange(0, ROWS)
    # if rounding leaves nothing beyond the target, take the last entry with a weight
    last = tl.max(tl.where(sums > 0, line, 0))
    at = tl.minimum(tl.min(tl.where(passed > target, line, ROWS)), last)
    left = (target - tl.max(tl.where(line < at, passed, 0.0))).to(tl.float32)
    col = tl.arange(0, COLS)
    here = tl.sum(tl.where(line[:, None] == at, weight, 0.0), 0)
    last_here = tl.max(tl.where(here > 0, col, 0))
    found = tl.min(tl.where((tl.cumsum(here, 0) > left) & (here > 0), col, COLS))
    return at * COLS + tl.minimum(found, last_here)
