# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Searches for the least logit and the least weight that top_k and top_p keep, in rows too long for one program.

Letters as in `wide`. Each search is for a float, among the ranks of floats. A round tries 15 ranks, and the next launch
adds up the results of the chunks: 4 rounds find a bfloat16, 8 rounds a float32. Rows that need no search return at
once.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.sampling.limited import Limited, limited, value_of
from stoop_worker.kernels.sampling.reference import LEAST_TEMPERATURE

__all__ = [
    "LARGEST",
    "LEAST",
    "OF_ANY_VALUE",
    "WideShape",
    "Work",
    "low_after",
    "peak_of",
    "search",
    "searches",
    "weigh",
    "weight_of",
]

LEAST = tl.constexpr(LEAST_TEMPERATURE)
LARGEST = tl.constexpr(3.4028234663852886e38)
_LANES = tl.constexpr(16)  # the 15 tries of a round, and the whole sum
_BITS_OF_ROUND = 4
# alignment differs with the number of rows: that must not trigger a recompilation
OF_ANY_VALUE = [
    "suppressed_ptr",
    "mask_rows_ptr",
    "temperatures_ptr",
    "top_ps_ptr",
    "top_ks_ptr",
    "uniforms_ptr",
    "lows_before_ptr",
    "lows_ptr",
    "width",
]


@dataclass(frozen=True, slots=True)
class WideShape:
    """The split of a row: ids of a chunk, ids that a program of a round holds at once, and its warps.

    A pass after the first has about `programs` of them in all: more take longer to end if no row needs the pass.
    """

    chunk: int = 4096
    slice: int = 1024
    warps: int = 8
    programs: int = 512


@dataclass(frozen=True, slots=True)
class Work:
    """One call: its inputs, and the buffers that its launches share."""

    rows: Limited
    temperatures_B: Tensor
    top_ps_B: Tensor
    peaks_BC: Tensor
    least_logits_B: Tensor
    shape: WideShape

    @property
    def grid(self) -> tuple[int, int]:
        """One program for each chunk of each row."""
        return self.peaks_BC.shape[1], self.peaks_BC.shape[0]

    @property
    def shared_grid(self) -> tuple[int, int]:
        """Fewer programs, which share the chunks of a row."""
        chunks, count = self.grid
        return min(chunks, triton.cdiv(self.shape.programs, count)), count

    def options(self, *, first: bool = False) -> dict[str, Any]:
        """Return the launch options of a pass: those after the first start early."""
        _, count = self.grid
        return early.options(self.peaks_BC.device, count, plainly=first, most=early.MOST_IN_LINE_ROWS)

    @property
    def arguments(self) -> tuple[Tensor | int, ...]:
        """The first arguments of every pass."""
        top_ks_B = self.temperatures_B if self.rows.top_ks_B is None else self.rows.top_ks_B
        rules = (self.temperatures_B, self.top_ps_B, top_ks_B)
        return *self.rows.arguments, *rules, self.peaks_BC, self.least_logits_B

    @property
    def constants(self) -> dict[str, int]:
        """The constants that every pass is compiled with."""
        chunks = self.peaks_BC.shape[1]
        return {
            **self.rows.constants,
            "C": chunks,
            "CHUNKS": triton.next_power_of_2(chunks),
            "CHUNK": self.shape.chunk,
            "TOP_K": self.rows.top_ks_B is not None,
        }


def search(work: Work, *, counts: bool) -> tuple[Tensor, Tensor]:
    """Search for the least logit that top_k keeps, or the least weight that top_p keeps.

    Returns the result of the last round: its sums, and the ranks it has tried.
    """
    bits = work.rows.constants["BITS"]
    rounds, (chunks, count), device = bits // _BITS_OF_ROUND, work.grid, work.peaks_BC.device
    sums = torch.empty((rounds, count, chunks, _LANES.value), dtype=torch.float32, device=device)
    lows = torch.empty((rounds, count), dtype=torch.int64, device=device)
    kernel: Any = _narrow
    for number in range(rounds):
        before = max(0, number - 1)
        kernel[work.shared_grid](
            *work.arguments,
            sums[before],
            lows[before],
            sums[number],
            lows[number],
            1 << (bits - _BITS_OF_ROUND * (number + 1)),
            **work.constants,
            SLICE=min(work.shape.slice, work.shape.chunk),
            COUNTS=counts,
            FIRST=number == 0,
            num_warps=work.shape.warps,
            **work.options(),
        )
    return sums[-1], lows[-1]


@triton.jit(do_not_specialize=OF_ANY_VALUE)
def _narrow(
    logits_ptr,
    suppressed_ptr,
    masks_ptr,
    mask_rows_ptr,
    stride,
    mask_stride,
    temperatures_ptr,
    top_ps_ptr,
    top_ks_ptr,
    peaks_ptr,
    least_logits_ptr,
    sums_before_ptr,
    lows_before_ptr,
    sums_ptr,
    lows_ptr,
    width,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    TOP_K: tl.constexpr,
    SLICE: tl.constexpr,
    COUNTS: tl.constexpr,
    FIRST: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Store the number of a chunk's logits, or the sum of its weights, above each of a round's tries."""
    early.let_next_start(EARLY)
    row = tl.program_id(1)
    temperature = tl.load(temperatures_ptr + row)
    wanted = searches(temperature, top_ps_ptr, top_ks_ptr, row, COUNTS)
    early.wait(EARLY)
    if not wanted:
        return
    width = width.to(tl.int64)
    low = tl.full((), 0, tl.int64)
    if not FIRST:
        low = low_after(
            sums_before_ptr, lows_before_ptr, top_ps_ptr, top_ks_ptr, row, width * _LANES, C, CHUNKS, COUNTS
        )
    if tl.program_id(0) == 0:
        tl.store(lows_ptr + row, low)
    lane = tl.arange(0, _LANES)
    border = value_of(low + (lane + 1) * width - 1, BITS)
    peak = peak_of(peaks_ptr, row, C, CHUNKS)
    divisor = tl.minimum(temperature.to(tl.float32), LARGEST)
    if not COUNTS:
        # the factor allows for equal logits whose weights were rounded differently; the last lane sums all weights
        border = tl.where(lane < _LANES - 1, weight_of(border, peak, divisor) * 1.000001, -1.0)
    for chunk in range(tl.program_id(0), C, tl.num_programs(0)):
        sums = tl.zeros((_LANES, SLICE), tl.float32)
        for start in range(0, CHUNK, SLICE):
            token = chunk * CHUNK + start + tl.arange(0, SLICE)
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
            if COUNTS:
                sums += tl.where(x[None, :] > border[:, None], 1.0, 0.0)
            else:
                weight = weigh(x, least_logits_ptr, row, peak, divisor, TOP_K)
                sums += tl.where(weight[None, :] > border[:, None], weight[None, :], 0.0)
        tl.store(sums_ptr + (row * C + chunk) * _LANES + lane, tl.sum(sums, 1))


@triton.jit
def searches(temperature, top_ps_ptr, top_ks_ptr, row, COUNTS: tl.constexpr):
    """Return whether a row has a top_k, or a top_p, that excludes any ids."""
    cut = tl.load(top_ks_ptr + row) > 0 if COUNTS else tl.load(top_ps_ptr + row) < 1.0
    return cut & (temperature >= LEAST)


@triton.jit
def low_after(
    sums_ptr, lows_ptr, top_ps_ptr, top_ks_ptr, row, width, C: tl.constexpr, CHUNKS: tl.constexpr, COUNTS: tl.constexpr
):
    """Return the lowest rank that a round leaves: it tries every `width` ranks, and keeps the lowest that suffices. A
    rank suffices if the ids above it are within top_k, or within top_p's share of the whole.
    """
    chunk = tl.arange(0, CHUNKS)
    lane = tl.arange(0, _LANES)
    place = (row * C + chunk)[:, None] * _LANES + lane[None, :]
    above = tl.sum(tl.load(sums_ptr + place, mask=(chunk < C)[:, None], other=0.0).to(tl.float64), 0)
    if COUNTS:
        share = tl.load(top_ks_ptr + row).to(tl.float64) - 1
    else:
        share = tl.load(top_ps_ptr + row).to(tl.float64) * tl.sum(tl.where(lane == _LANES - 1, above, 0.0))
    passed = tl.sum(((lane < _LANES - 1) & (above > share)).to(tl.int64))
    return tl.load(lows_ptr + row) + passed * width


@triton.jit
def peak_of(peaks_ptr, row, C: tl.constexpr, CHUNKS: tl.constexpr):
    """Return a row's largest logit."""
    chunk = tl.arange(0, CHUNKS)
    return tl.max(tl.load(peaks_ptr + row * C + chunk, mask=chunk < C, other=float("-inf")))


@triton.jit
def weigh(x, least_logits_ptr, row, peak, divisor, TOP_K: tl.constexpr):
    """Return exp(logit / temperature) as a fraction of the largest one; 0 for logits that top_k excludes."""
    if TOP_K:
        x = tl.where(x >= tl.load(least_logits_ptr + row), x, float("-inf"))
    return tl.exp((x - peak) / divisor)


@triton.jit
def weight_of(x, peak, divisor):
    """Return the weight of a logit, which may lie beyond the vocabulary."""
    return tl.exp(tl.minimum(x - peak, 0.0) / divisor)
