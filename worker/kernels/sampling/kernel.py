# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Choosing tokens without a sort. B rows, V vocabulary.

A program takes one row and holds it all: as (ROWS, COLS) of the weights exp(logit / temperature), the largest being 1.
Which weights top_p keeps is found by bisection: of all floats x, for the least that has no more than top_p's share of
the whole above it. The bits of positive floats are in the order of their values, so 30 halvings find x exactly.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from worker.kernels.sampling.reference import LEAST_TEMPERATURE

__all__ = ["Shape", "sample"]

_LEAST = tl.constexpr(LEAST_TEMPERATURE)
_LARGEST = tl.constexpr(3.4028234663852886e38)
_BITS_OF_ONE = tl.constexpr(0x3F800000)
# of minus and plus infinity among all bfloat16
_RANK_OF_LEAST = tl.constexpr(0x007F)
_RANK_OF_MOST = tl.constexpr(0xFF80)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a program holds its row: `cols` ids beside each other; the rest is a matter of speed."""

    cols: int = 256
    warps: int = 16


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    suppressed_B2: Tensor | None = None,
    shape: Shape | None = None,
) -> Tensor:
    """As `reference.sample`, in one launch, for a vocabulary of at most 65536."""
    count, vocabulary = logits_BV.shape
    shape = shape or Shape()
    if vocabulary > 1 << 16:
        raise ValueError(f"a row of {vocabulary} logits is too long for one program: at most {1 << 16}")
    ids_B = torch.empty(count, dtype=torch.int64, device=logits_BV.device)
    if count == 0:
        return ids_B
    if logits_BV.stride(1) != 1:
        logits_BV = logits_BV.contiguous()
    cols = min(shape.cols, triton.next_power_of_2(vocabulary))
    rows = triton.next_power_of_2(triton.cdiv(vocabulary, cols))
    kernel: Any = _sample
    kernel[(count,)](
        logits_BV,
        temperatures_B.contiguous(),
        top_ps_B.contiguous(),
        uniforms_B.contiguous(),
        ids_B if suppressed_B2 is None else suppressed_B2.contiguous(),
        ids_B,
        logits_BV.stride(0),
        V=vocabulary,
        SUPPRESSED=suppressed_B2 is not None,
        ROWS=rows,
        COLS=cols,
        # a short row needs no more
        num_warps=max(1, min(shape.warps, rows * cols // 256)),
    )
    return ids_B


# rows of one tensor of numbers, whose addresses differ with how many there are: nothing is compiled anew for that
@triton.jit(do_not_specialize=["temperatures_ptr", "top_ps_ptr", "uniforms_ptr", "suppressed_ptr"])
def _sample(
    logits_ptr,
    temperatures_ptr,
    top_ps_ptr,
    uniforms_ptr,
    suppressed_ptr,
    ids_ptr,
    stride,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.program_id(0)
    token = tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
    logits_ptr += row.to(tl.int64) * stride
    x = tl.load(logits_ptr + token, mask=token < V, other=float("-inf")).to(tl.float32)
    if SUPPRESSED:
        first = tl.load(suppressed_ptr + 2 * row)
        second = tl.load(suppressed_ptr + 2 * row + 1)
        x = tl.where((token == first) | (token == second), float("-inf"), x)
    peak = tl.max(x)
    temperature = tl.load(temperatures_ptr + row)
    if temperature < _LEAST:
        chosen = tl.min(tl.where(x == peak, token, V - 1))
    else:
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
def _least_kept(weight, share):
    """Return the least x such that the weights above x sum up to no more than the share; x is one of the weights."""
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
    """Return the same where logits are bfloat16: half as many halvings, among the weights that such logits can have.

    The two factors are for weights of one logit that were not rounded alike; those of two are farther apart.
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
    """Return the weight of the bfloat16 logit of a rank: ranks are in the order of values, negative ones below."""
    bits = tl.where(rank >= 0x8000, rank - 0x8000, 0xFFFF - rank)
    return tl.exp(tl.minimum((bits << 16).to(tl.float32, bitcast=True) - peak, 0.0) / divisor)


@triton.jit
def _draw(weight, uniform, V: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the token at which the running sum of the weights passes the uniform's share of the whole."""
    line = tl.arange(0, ROWS)
    sums = tl.sum(weight, 1).to(tl.float64)
    passed = tl.cumsum(sums, 0)
    target = uniform * tl.max(passed)
    # rounding may leave nothing beyond the target: then it is the last that has a weight
    last = tl.max(tl.where(sums > 0, line, 0))
    at = tl.minimum(tl.min(tl.where(passed > target, line, ROWS)), last)
    left = (target - tl.max(tl.where(line < at, passed, 0.0))).to(tl.float32)
    col = tl.arange(0, COLS)
    here = tl.sum(tl.where(line[:, None] == at, weight, 0.0), 0)
    last_here = tl.max(tl.where(here > 0, col, 0))
    found = tl.min(tl.where((tl.cumsum(here, 0) > left) & (here > 0), col, COLS))
    return tl.minimum(at * COLS + tl.minimum(found, last_here), V - 1)
