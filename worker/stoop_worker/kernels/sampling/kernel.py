# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Chooses tokens without a sort. B rows, V vocabulary.

A program takes one row and holds all of it, as (ROWS, COLS) weights exp(logit / temperature), scaled so that the
largest is 1. Bisection finds the weights that top_p keeps: it searches for the smallest float x for which the weights
above x sum up to at most top_p's share of the whole. The bits of positive floats are in the order of their values, so
30 halvings find x exactly. The logits that top_k keeps are found in the same way.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.sampling.limited import Limited, limited, place_of, value_of
from stoop_worker.kernels.sampling.limits import Limits
from stoop_worker.kernels.sampling.reference import LEAST_TEMPERATURE

__all__ = ["Shape", "sample"]

_LEAST = tl.constexpr(LEAST_TEMPERATURE)
_LARGEST = tl.constexpr(3.4028234663852886e38)
_BITS_OF_ONE = tl.constexpr(0x3F800000)
# the ranks of minus and plus infinity among all bfloat16
_RANK_OF_LEAST = tl.constexpr(0x007F)
_RANK_OF_MOST = tl.constexpr(0xFF80)


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of a row in a program: `cols` neighbouring ids; the other fields affect only the speed."""

    cols: int = 256
    warps: int = 16


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    limits: Limits | None = None,
    shape: Shape | None = None,
) -> Tensor:
    """Compute `reference.sample` in one launch, for a vocabulary of at most 65,536."""
    count, vocabulary = logits_BV.shape
    shape = shape or Shape()
    if vocabulary > 1 << 16:
        raise ValueError(f"a row of {vocabulary} logits is too long for one program: at most {1 << 16}")
    ids_B = torch.empty(count, dtype=torch.int64, device=logits_BV.device)
    if count == 0:
        return ids_B
    rows_of = Limited.of(logits_BV, limits or Limits())
    cols = min(shape.cols, triton.next_power_of_2(vocabulary))
    rows = triton.next_power_of_2(triton.cdiv(vocabulary, cols))
    kernel: Any = _sample
    kernel[(count,)](
        *rows_of.arguments,
        temperatures_B.contiguous(),
        top_ps_B.contiguous(),
        uniforms_B.contiguous(),
        ids_B if rows_of.top_ks_B is None else rows_of.top_ks_B,
        ids_B,
        **rows_of.constants,
        TOP_K=rows_of.top_ks_B is not None,
        ROWS=rows,
        COLS=cols,
        # a short row needs no more
        num_warps=max(1, min(shape.warps, rows * cols // 256)),
    )
    return ids_B


# these are rows of one tensor, aligned differently for each batch size: that must not trigger a recompilation
@triton.jit(
    do_not_specialize=[
        "suppressed_ptr",
        "mask_rows_ptr",
        "temperatures_ptr",
        "top_ps_ptr",
        "uniforms_ptr",
        "top_ks_ptr",
    ]
)
def _sample(
    logits_ptr,
    suppressed_ptr,
    masks_ptr,
    mask_rows_ptr,
    stride,
    mask_stride,
    temperatures_ptr,
    top_ps_ptr,
    uniforms_ptr,
    top_ks_ptr,
    ids_ptr,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    TOP_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.program_id(0)
    token = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    x = limited(
        logits_ptr,
        suppressed_ptr,
        masks_ptr,
        mask_rows_ptr,
        stride,
        mask_stride,
        row,
        token,
        V,
        SUPPRESSED,
        MASKED,
    )
    peak = tl.max(x)
    temperature = tl.load(temperatures_ptr + row)
    if temperature < _LEAST:
        chosen = tl.min(tl.where(x == peak, token, V - 1))
    else:
        if TOP_K:
            top_k = tl.load(top_ks_ptr + row)
            if top_k > 0:
                x = tl.where(x >= _kth_largest(x, top_k, BITS), x, float("-inf"))
        divisor = tl.minimum(temperature.to(tl.float32), _LARGEST)
        weight = tl.exp((x - peak) / divisor)
        top_p = tl.load(top_ps_ptr + row).to(tl.float32)
        if top_p < 1.0:
            share = top_p * tl.sum(weight)
            if logits_ptr.dtype.element_ty == tl.bfloat16:
                least = _least_kept_bfloat16(weight, share, peak, divisor)
            else:
                least = _least_kept(weight, share)
            weight = tl.where(weight >= least, weight, 0.0)
        chosen = _draw(weight, tl.load(uniforms_ptr + row).to(tl.float64), V, ROWS, COLS)
    tl.store(ids_ptr + row, chosen.to(tl.int64))


@triton.jit
def _kth_largest(x, k, BITS: tl.constexpr):
    """Return the least float such that fewer than k values of x are larger; it is a value of x."""
    low = tl.full((), 0, tl.int64)
    high = low + ((1 << BITS) - 1)
    for _ in range(BITS):
        middle = (low + high) // 2
        enough = tl.sum((x > value_of(middle, BITS)).to(tl.int32)) < k
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return value_of(high, BITS)


@triton.jit
def _least_kept(weight, share):
    """Return the least weight x such that the weights above x sum up to no more than the share."""
    low = 0
    high = _BITS_OF_ONE
    for _ in range(30):
        middle = (low + high) // 2
        x = middle.to(tl.float32, bitcast=True)
        enough = tl.sum(tl.where(weight > x, weight, 0.0)) <= share
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return high.to(tl.float32, bitcast=True)


@triton.jit
def _least_kept_bfloat16(weight, share, peak, divisor):
    """Return the same for bfloat16 logits, in half as many halvings, among the weights that such logits can have.

    The two factors allow for equal logits whose weights were rounded differently; different logits are farther apart.
    """
    low = _RANK_OF_LEAST
    high = _RANK_OF_MOST
    for _ in range(16):
        middle = (low + high) // 2
        x = _weight_of(middle, peak, divisor) * 1.000001
        enough = tl.sum(tl.where(weight > x, weight, 0.0)) <= share
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return _weight_of(high, peak, divisor) * 0.999999


@triton.jit
def _weight_of(rank, peak, divisor):
    """Return the weight of the bfloat16 logit of a rank; ranks follow the order of values."""
    bits = tl.where(rank >= 0x8000, rank - 0x8000, 0xFFFF - rank)
    return tl.exp(tl.minimum((bits << 16).to(tl.float32, bitcast=True) - peak, 0.0) / divisor)


@triton.jit
def _draw(weight, uniform, V: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the token at which the running sum of the weights passes the uniform's share of the whole."""
    sums = tl.sum(weight, 1).to(tl.float64)
    passed = tl.cumsum(sums, 0)
    return tl.minimum(place_of(weight, sums, passed, uniform * tl.max(passed), ROWS, COLS), V - 1)
