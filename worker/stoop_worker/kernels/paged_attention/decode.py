# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Attention of one query row a sequence. Letters as in `reference`; B sequences, so B rows.

A program takes one head of one sequence and one of at most SPLITS ranges of its positions. Each of the BLOCK positions
that it reads at once has its own softmax, so that no warp waits for another before the end. The last program of a head
to end combines the ranges.
"""

from dataclasses import dataclass, replace
from functools import cache
from math import e, log2
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.paged_attention.layout import PagedLayout

__all__ = ["LOWEST", "Ranges", "add_up", "decode", "end", "merge", "ranges_for", "scratch", "take", "takes_every_place"]

_PROGRAMS = 1024
"""The number of programs that fills the device; fewer programs are split further."""

_MOST_SPLITS = 16
LOWEST = tl.constexpr(-1e30)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The split of the work: `splits` ranges, `block` positions read at once; both are powers of two.

    `registers` bounds the registers of a thread, so that more programs fit on the device.
    """

    splits: int
    block: int = 32
    warps: int = 2
    stages: int = 3
    registers: int | None = None


_ONE_RANGE = Ranges(1)


def ranges_for(
    batch: int, heads: int, positions: int, ranges: Ranges = _ONE_RANGE, *, most: int = _MOST_SPLITS
) -> Ranges:
    """Choose the splits of `ranges` for `batch` sequences of at most `positions`.

    Only shapes decide, because a graph captures them.
    """
    wanted = max(1, _PROGRAMS // (batch * heads))
    blocks = triton.next_power_of_2(triton.cdiv(positions, ranges.block))
    return replace(ranges, splits=min(1 << (wanted.bit_length() - 1), blocks, most))


def takes_every_place(batch: int, heads: int) -> bool:
    """Return whether the programs of long contexts are just as many as run on the device at once."""
    return heads * batch <= _PROGRAMS and _PROGRAMS % (heads * batch) == 0


def decode(
    q_BHD: Tensor,
    pool: Tensor,
    layout: PagedLayout,
    *,
    scale: float | None = None,
    out_TM: Tensor | None = None,
    ranges: Ranges | None = None,
) -> Tensor:
    """Compute `reference.paged_attention` for one row a sequence; a captured launch may be replayed with new lengths.

    D is a power of two; the pool's dtype may differ from q's. Calls on one device must not overlap, because they share
    the counters of ended programs.
    """
    batch, heads, head_dim = q_BHD.shape
    table_BP = layout.page_table_BP
    if ranges is None:
        ranges = ranges_for(batch, heads, table_BP.shape[1] * layout.page_size)
    q_BC = q_BHD.reshape(batch, heads * head_dim)
    out_BM = torch.empty_like(q_BC, memory_format=torch.contiguous_format) if out_TM is None else out_TM
    parts, sums, arrivals = scratch(batch, heads, head_dim, ranges.splits, q_BHD.device)
    kernel: Any = _decode
    kernel[(heads, ranges.splits, batch)](
        q_BC,
        pool[0],
        pool[1],
        table_BP,
        layout.context_lens_B,
        out_BM,
        parts,
        sums,
        arrivals,
        q_BC.stride(0),
        table_BP.stride(0),
        out_BM.stride(0),
        log2(e) * (head_dim**-0.5 if scale is None else scale),
        H=heads,
        D=head_dim,
        PAGE=layout.page_size,
        SPLITS=ranges.splits,
        BLOCK=ranges.block,
        STAGES=ranges.stages,
        num_warps=ranges.warps,
        **early.options(q_BHD.device, batch, most=early.MOST_IN_LINE_ROWS),
    )
    return out_BM[:, : heads * head_dim].view(q_BHD.shape)


def scratch(batch: int, heads: int, head_dim: int, splits: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return buffers for the ranges' mixtures, for their peaks and sums, and the counters of ended programs.

    The counters, one for each head of each row, are zero before and after each call.
    """
    shape = (batch, heads, splits) if splits > 1 else (1,)
    parts = torch.empty((*shape, head_dim), dtype=torch.float32, device=device)
    sums = torch.empty((*shape, 2), dtype=torch.float32, device=device)
    return parts, sums, _counters(device, max(_PROGRAMS, batch * heads))


@cache
def _counters(device: torch.device, count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)


@triton.jit
def _decode(
    q_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    contexts_ptr,
    out_ptr,
    parts_ptr,
    sums_ptr,
    arrivals_ptr,
    q_stride,
    table_stride,
    out_stride,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    head = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.program_id(2)
    early.let_next_start(EARLY)
    context = tl.load(contexts_ptr + row)
    blocks = tl.maximum(tl.cdiv(context, BLOCK), 1)
    each = tl.cdiv(blocks, SPLITS)
    active = tl.cdiv(blocks, each)
    first = split * each * BLOCK
    last = tl.minimum(first + each * BLOCK, context)
    early.wait(EARLY)
    if split >= active:
        return
    channel = tl.arange(0, D)
    q = tl.load(q_ptr + row * q_stride + head * D + channel).to(tl.float32) * scale
    top, total, mixed = _read(
        q,
        keys_ptr + head * D,
        values_ptr + head * D,
        table_ptr + row * table_stride,
        first,
        last,
        H,
        D,
        PAGE,
        BLOCK,
        STAGES,
    )
    peak, whole, mix = merge(top, total, mixed)
    target_ptr = out_ptr + row * out_stride + head * D + channel
    end(peak, whole, mix, target_ptr, parts_ptr, sums_ptr, arrivals_ptr, row * H + head, split, active, D, SPLITS)


@triton.jit
def end(
    peak,
    whole,
    mix,
    target_ptr,
    parts_ptr,
    sums_ptr,
    arrivals_ptr,
    pair,
    split,
    active,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Store a program's mixture; the last program of a pair (a head of a row) to end combines all its ranges."""
    if SPLITS == 1:
        tl.store(target_ptr, (mix / tl.maximum(whole, 1e-30)).to(target_ptr.dtype.element_ty))
    else:
        if active == 1:
            tl.store(target_ptr, (mix / tl.maximum(whole, 1e-30)).to(target_ptr.dtype.element_ty))
        else:
            part = pair * SPLITS + split
            tl.store(parts_ptr + part * D + tl.arange(0, D), mix)
            tl.store(sums_ptr + part * 2, peak)
            tl.store(sums_ptr + part * 2 + 1, whole)
            # every thread has written before one of them announces it
            tl.debug_barrier()
            ended = tl.atomic_add(arrivals_ptr + pair, 1, sem="acq_rel")
            if ended == active - 1:
                add_up(parts_ptr + pair * SPLITS * D, sums_ptr + pair * SPLITS * 2, target_ptr, active, D, SPLITS)
                tl.store(arrivals_ptr + pair, 0)


@triton.jit
def _read(
    q,
    keys_ptr,
    values_ptr,
    table_ptr,
    first,
    last,
    H: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return the running softmax of each position of a block: its peak, its sum and its mixture of values."""
    place = tl.arange(0, BLOCK)
    channel = tl.arange(0, D)
    top = tl.full((BLOCK,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, D), tl.float32)
    for start in tl.range(first, last, BLOCK, num_stages=STAGES):
        # the last position replaces those beyond it, whose slots may hold NaN
        position = tl.minimum(start + place, last - 1)
        page = tl.load(table_ptr + position // PAGE).to(tl.int64)
        slot = page * PAGE + position % PAGE
        source = slot[:, None] * (H * D) + channel[None, :]
        k = tl.load(keys_ptr + source).to(tl.float32)
        v = tl.load(values_ptr + source).to(tl.float32)
        top, total, mixed = take(q, k, v, start + place < last, top, total, mixed)
    return top, total, mixed


@triton.jit
def take(q, k, v, there, top, total, mixed):
    """Return the running softmaxes with one more position in each; k and v are float32."""
    score = tl.where(there, tl.sum(k * q[None, :], 1), float("-inf"))
    higher = tl.maximum(top, score)
    decay = tl.exp2(top - higher)
    weight = tl.exp2(score - higher)
    return higher, total * decay + weight, mixed * decay[:, None] + weight[:, None] * v


@triton.jit
def merge(tops, totals, mixed):
    """Return the softmax over all the running softmaxes."""
    peak = tl.max(tops, 0)
    share = tl.exp2(tops - peak)
    return peak, tl.sum(totals * share, 0), tl.sum(mixed * share[:, None], 0)


@triton.jit
def add_up(parts_ptr, sums_ptr, target_ptr, active, D: tl.constexpr, SPLITS: tl.constexpr):
    """Store the softmax over all ranges of a head."""
    split = tl.arange(0, SPLITS)
    channel = tl.arange(0, D)
    # bypass the nearest cache, which may hold older values
    there = split < active
    tops = tl.load(sums_ptr + split * 2, mask=there, other=LOWEST, cache_modifier=".cg")
    totals = tl.load(sums_ptr + split * 2 + 1, mask=there, other=0.0, cache_modifier=".cg")
    source = split[:, None] * D + channel[None, :]
    mixed = tl.load(parts_ptr + source, mask=there[:, None], other=0.0, cache_modifier=".cg")
    _, whole, mix = merge(tops, totals, mixed)
    tl.store(target_ptr, (mix / whole).to(target_ptr.dtype.element_ty))
