# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Chooses tokens from a vocabulary that one program cannot hold. B rows, V vocabulary, C chunks of a row.

A program takes one chunk of one row, and a launch is a pass over all chunks: one for the peaks, some to search for the
ids that top_k and top_p keep, one for the sums of the kept weights. In the last launch one program a row chooses.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.sampling.limited import Limited, limited, place_of, value_of
from stoop_worker.kernels.sampling.limits import Limits
from stoop_worker.kernels.sampling.wide_search import (
    LARGEST,
    LEAST,
    OF_ANY_VALUE,
    WideShape,
    Work,
    low_after,
    peak_of,
    search,
    searches,
    weigh,
    weight_of,
)

__all__ = ["sample"]


def sample(
    logits_BV: Tensor,
    temperatures_B: Tensor,
    top_ps_B: Tensor,
    uniforms_B: Tensor,
    limits: Limits | None = None,
    shape: WideShape | None = None,
) -> Tensor:
    """Compute `reference.sample` in several launches; the host does not wait between them."""
    shape = shape or WideShape()
    count, vocabulary = logits_BV.shape
    device, chunks = logits_BV.device, triton.cdiv(vocabulary, shape.chunk)
    ids_B = torch.empty(count, dtype=torch.int64, device=device)
    if count == 0:
        return ids_B
    work = Work(
        rows=Limited.of(logits_BV, limits or Limits()),
        temperatures_B=temperatures_B.contiguous(),
        top_ps_B=top_ps_B.contiguous(),
        peaks_BC=torch.empty((count, chunks), dtype=torch.float32, device=device),
        least_logits_B=torch.empty(count, dtype=torch.float32, device=device),
        shape=shape,
    )
    best_BC = torch.empty((count, chunks), dtype=torch.int32, device=device)
    kernel: Any = _peaks
    kernel[work.grid](*work.arguments, best_BC, **work.constants, **work.options(first=True))
    if work.rows.top_ks_B is not None:
        kernel = _settle
        kernel[(count,)](*work.arguments, *search(work, counts=True), **work.constants, **work.options())
    _choose(work, best_BC, uniforms_B.contiguous(), ids_B)
    return ids_B


def _choose(work: Work, best_BC: Tensor, uniforms_B: Tensor, ids_B: Tensor) -> None:
    """Launch the kernels that take the largest logits, or draw among the kept weights."""
    kept_BC = torch.empty(best_BC.shape, dtype=torch.float64, device=ids_B.device)
    least_weights_B = torch.empty_like(work.least_logits_B)
    cols = min(256, work.shape.chunk)
    options = {**work.constants, "ROWS": work.shape.chunk // cols, "COLS": cols, **work.options()}
    found = search(work, counts=False)
    kernel: Any = _keep
    kernel[work.shared_grid](*work.arguments, *found, kept_BC, least_weights_B, **options)
    kernel = _pick
    kernel[(len(ids_B),)](*work.arguments, best_BC, kept_BC, least_weights_B, uniforms_B, ids_B, **options)


@triton.jit(do_not_specialize=OF_ANY_VALUE)
def _peaks(
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
    best_ptr,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    TOP_K: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Store each chunk's largest logit, and the lowest id with that logit."""
    early.let_next_start(EARLY)
    early.wait(EARLY)
    chunk = tl.program_id(0)
    row = tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    x = limited(
        logits_ptr, suppressed_ptr, masks_ptr, mask_rows_ptr, stride, mask_stride, row, token, V, SUPPRESSED, MASKED
    )
    peak = tl.max(x)
    tl.store(peaks_ptr + row * C + chunk, peak)
    tl.store(best_ptr + row * C + chunk, tl.min(tl.where(x == peak, token, V - 1)))


@triton.jit(do_not_specialize=OF_ANY_VALUE)
def _settle(
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
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    TOP_K: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Store the least logit that each row's top_k keeps."""
    early.let_next_start(EARLY)
    early.wait(EARLY)
    row = tl.program_id(0)
    least = tl.full((), float("-inf"), tl.float32)
    if searches(tl.load(temperatures_ptr + row), top_ps_ptr, top_ks_ptr, row, True):
        low = low_after(sums_before_ptr, lows_before_ptr, top_ps_ptr, top_ks_ptr, row, 1, C, CHUNKS, True)
        least = value_of(low, BITS)
    tl.store(least_logits_ptr + row, least)


@triton.jit(do_not_specialize=OF_ANY_VALUE)
def _keep(
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
    kept_ptr,
    least_weights_ptr,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    TOP_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Store the least weight that each row's top_p keeps, and the sum of each chunk's kept weights."""
    early.let_next_start(EARLY)
    row = tl.program_id(1)
    temperature = tl.load(temperatures_ptr + row)
    early.wait(EARLY)
    if temperature < LEAST:
        return
    peak = peak_of(peaks_ptr, row, C, CHUNKS)
    divisor = tl.minimum(temperature.to(tl.float32), LARGEST)
    least = tl.full((), 0.0, tl.float32)
    if searches(temperature, top_ps_ptr, top_ks_ptr, row, False):
        low = low_after(sums_before_ptr, lows_before_ptr, top_ps_ptr, top_ks_ptr, row, 1, C, CHUNKS, False)
        least = weight_of(value_of(low, BITS), peak, divisor) * 0.999999
    for chunk in range(tl.program_id(0), C, tl.num_programs(0)):
        token = chunk * CHUNK + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
        x = limited(
            logits_ptr, suppressed_ptr, masks_ptr, mask_rows_ptr, stride, mask_stride, row, token, V, SUPPRESSED, MASKED
        )
        weight = weigh(x, least_logits_ptr, row, peak, divisor, TOP_K)
        sums = tl.sum(tl.where(weight >= least, weight, 0.0), 1).to(tl.float64)
        tl.store(kept_ptr + row * C + chunk, tl.sum(sums))
    if tl.program_id(0) == 0:
        tl.store(least_weights_ptr + row, least)


@triton.jit(do_not_specialize=OF_ANY_VALUE)
def _pick(
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
    best_ptr,
    kept_ptr,
    least_weights_ptr,
    uniforms_ptr,
    ids_ptr,
    V: tl.constexpr,
    SUPPRESSED: tl.constexpr,
    MASKED: tl.constexpr,
    BITS: tl.constexpr,
    C: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    TOP_K: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Store the largest logit's id, or the id at which the kept weights' running sum passes the uniform's share."""
    early.let_next_start(EARLY)
    row = tl.program_id(0)
    temperature = tl.load(temperatures_ptr + row)
    early.wait(EARLY)
    peak = peak_of(peaks_ptr, row, C, CHUNKS)
    chunk = tl.arange(0, CHUNKS)
    there = chunk < C
    if temperature < LEAST:
        peaks = tl.load(peaks_ptr + row * C + chunk, mask=there, other=float("-inf"))
        best = tl.load(best_ptr + row * C + chunk, mask=there, other=V - 1)
        chosen = tl.min(tl.where(peaks == peak, best, V - 1))
    else:
        kept = tl.load(kept_ptr + row * C + chunk, mask=there, other=0.0)
        passed = tl.cumsum(kept, 0)
        target = tl.load(uniforms_ptr + row).to(tl.float64) * tl.max(passed)
        # if rounding leaves nothing beyond the target, take the last entry with a weight
        last = tl.max(tl.where(kept > 0, chunk, 0))
        at = tl.minimum(tl.min(tl.where(passed > target, chunk, CHUNKS)), last)
        left = target - tl.max(tl.where(chunk < at, passed, 0.0))
        token = at * CHUNK + tl.arange(0, ROWS)[:, None] * COLS + tl.arange(0, COLS)[None, :]
        x = limited(
            logits_ptr, suppressed_ptr, masks_ptr, mask_rows_ptr, stride, mask_stride, row, token, V, SUPPRESSED, MASKED
        )
        divisor = tl.minimum(temperature.to(tl.float32), LARGEST)
        weight = weigh(x, least_logits_ptr, row, peak, divisor, TOP_K)
        weight = tl.where(weight >= tl.load(least_weights_ptr + row), weight, 0.0)
        sums = tl.sum(weight, 1).to(tl.float64)
        chosen = tl.minimum(at * CHUNK + place_of(weight, sums, tl.cumsum(sums, 0), left, ROWS, COLS), V - 1)
    tl.store(ids_ptr + row, chosen.to(tl.int64))
