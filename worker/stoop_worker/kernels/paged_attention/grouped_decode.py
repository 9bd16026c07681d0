# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Attention of one query row a sequence where G query heads share a key head. Letters as in `reference`; B rows.

A program takes one key head of one sequence, one range of its positions as in `decode`, and all G queries of the head,
so that keys and values are read once. The products need 16 queries: rows of zeros fill up the missing ones. The last
program of a key head to end combines the ranges.
"""

from dataclasses import replace
from math import e, log2
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.paged_attention.decode import LOWEST, Ranges, ranges_for, scratch
from stoop_worker.kernels.paged_attention.layout import PagedLayout

__all__ = [
    "decode_groups",
    "end_groups",
    "group_ranges",
    "heads_at_once",
    "queries_of",
    "suits_heads_alone",
    "take_group",
]

_LEAST_QUERIES = 16
_MOST_SPLITS = 32
_FULL_GRID, _KEY_BYTES = 1536, 128
_ONE_WARP = Ranges(1, block=32, warps=1, stages=3)
_VALUES_AT_ONCE = 16384


def group_ranges(q_BHD: Tensor, pool: Tensor, positions: int) -> Ranges:
    """Choose the ranges for sequences of at most `positions`, from shapes only: a graph captures them."""
    batch, key_heads, bytes_of_key = len(q_BHD), pool.shape[3], q_BHD.shape[2] * q_BHD.element_size()
    if suits_heads_alone(q_BHD, pool):
        return _ONE_WARP  # it waits for no other
    ranges = Ranges(1, block=64 if bytes_of_key <= 128 else 32, warps=4, stages=3 if bytes_of_key <= 256 else 2)
    if q_BHD.element_size() == 2:  # eight programs on a multiprocessor, so that all of a full grid run at once
        ranges = replace(ranges, registers=64)
    return ranges_for(batch, key_heads, positions, ranges, most=_MOST_SPLITS)


def suits_heads_alone(q_BHD: Tensor, pool: Tensor) -> bool:
    """Return whether this is faster than `decode` for heads that share no keys, though 15 of 16 queries are zeros.

    Tensor cores take fewer instructions. But programs of one warp fill the device only if there are enough heads.
    """
    batch, heads, head_dim = q_BHD.shape
    in_16_bits = pool.dtype is q_BHD.dtype and q_BHD.element_size() == 2
    return in_16_bits and heads == pool.shape[3] and head_dim * 2 == _KEY_BYTES and batch * heads >= _FULL_GRID


def decode_groups(
    q_BHD: Tensor,
    pool: Tensor,
    layout: PagedLayout,
    *,
    scale: float | None = None,
    out_TM: Tensor | None = None,
    ranges: Ranges | None = None,
) -> Tensor:
    """Compute `decode` for any number of query heads per key head; the rules of captures and calls are the same."""
    batch, heads, head_dim = q_BHD.shape
    key_heads, table_BP = pool.shape[3], layout.page_table_BP
    group = heads // key_heads
    if ranges is None:
        ranges = group_ranges(q_BHD, pool, table_BP.shape[1] * layout.page_size)
    q_BC = q_BHD.reshape(batch, heads * head_dim)
    out_BM = torch.empty_like(q_BC, memory_format=torch.contiguous_format) if out_TM is None else out_TM
    parts, sums, arrivals = scratch(batch, heads, head_dim, ranges.splits, q_BHD.device)
    kernel: Any = _decode_groups
    kernel[(key_heads, ranges.splits, batch)](
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
        K=key_heads,
        G=group,
        QUERIES=queries_of(group),
        HEADS=heads_at_once(group, head_dim, ranges.splits),
        D=head_dim,
        PAGE=layout.page_size,
        SPLITS=ranges.splits,
        BLOCK=ranges.block,
        STAGES=ranges.stages,
        num_warps=ranges.warps,
        # a float8 pool needs more of them, to convert its values
        **({"maxnreg": ranges.registers} if ranges.registers and pool.dtype == q_BHD.dtype else {}),
        **early.options(q_BHD.device, batch, most=early.MOST_IN_LINE_ROWS),
    )
    return out_BM[:, : heads * head_dim].view(q_BHD.shape)


def queries_of(group: int) -> int:
    """Return the rows of a program's products, for `group` query heads per key head."""
    return max(_LEAST_QUERIES, 1 << (group - 1).bit_length())


def heads_at_once(group: int, head_dim: int, splits: int) -> int:
    """Return how many heads of a group have their ranges combined at once: as many as the registers hold."""
    return max(1, min(1 << (group - 1).bit_length(), _VALUES_AT_ONCE // (splits * head_dim)))


@triton.jit
def _decode_groups(
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
    K: tl.constexpr,
    G: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    key_head = tl.program_id(0)
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
    member = tl.arange(0, QUERIES)
    channel = tl.arange(0, D)
    place = (key_head * G + member)[:, None] * D + channel[None, :]
    q = tl.load(q_ptr + row * q_stride + place, mask=(member < G)[:, None], other=0.0)
    top, total, mixed = _read(
        q,
        keys_ptr + key_head * D,
        values_ptr + key_head * D,
        table_ptr + row * table_stride,
        first,
        last,
        scale,
        K,
        QUERIES,
        D,
        PAGE,
        BLOCK,
        STAGES,
    )
    end_groups(
        top,
        total,
        mixed,
        out_ptr + row * out_stride + key_head * G * D,
        parts_ptr,
        sums_ptr,
        arrivals_ptr,
        row * K + key_head,
        split,
        active,
        G,
        QUERIES,
        HEADS,
        D,
        SPLITS,
    )


@triton.jit
def end_groups(
    top,
    total,
    mixed,
    target_ptr,
    parts_ptr,
    sums_ptr,
    arrivals_ptr,
    pair,
    split,
    active,
    G: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Store a program's mixtures; the last program of a pair (a key head of a row) to end combines all its ranges."""
    member = tl.arange(0, QUERIES)
    channel = tl.arange(0, D)
    real = member < G
    inside = real[:, None]
    if active == 1:
        mixed = mixed / tl.maximum(total, 1e-30)[:, None]
        place = member[:, None] * D + channel[None, :]
        tl.store(target_ptr + place, mixed.to(target_ptr.dtype.element_ty), mask=inside)
    else:
        part = (pair * G + member) * SPLITS + split
        tl.store(parts_ptr + part[:, None] * D + channel[None, :], mixed, mask=inside)
        tl.store(sums_ptr + part * 2, top, mask=real)
        tl.store(sums_ptr + part * 2 + 1, total, mask=real)
        # every thread has written before one of them announces it
        tl.debug_barrier()
        ended = tl.atomic_add(arrivals_ptr + pair, 1, sem="acq_rel")
        if ended == active - 1:
            its = pair * G * SPLITS
            _add_up_groups(parts_ptr + its * D, sums_ptr + its * 2, target_ptr, active, G, HEADS, D, SPLITS)
            tl.store(arrivals_ptr + pair, 0)


@triton.jit
def _add_up_groups(
    parts_ptr,
    sums_ptr,
    target_ptr,
    active,
    G: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Store the softmax over all ranges of a group's heads, some heads at once, so that their reads overlap."""
    split = tl.arange(0, SPLITS)[None, :]
    channel = tl.arange(0, D)
    for first in tl.static_range(0, G, HEADS):
        head = first + tl.arange(0, HEADS)
        there = (head < G)[:, None] & (split < active)
        part = head[:, None] * SPLITS + split
        # bypass the nearest cache, which may hold older values
        tops = tl.load(sums_ptr + part * 2, mask=there, other=LOWEST, cache_modifier=".cg")
        totals = tl.load(sums_ptr + part * 2 + 1, mask=there, other=0.0, cache_modifier=".cg")
        source = part[:, :, None] * D + channel[None, None, :]
        mixed = tl.load(parts_ptr + source, mask=there[:, :, None], other=0.0, cache_modifier=".cg")
        share = tl.exp2(tops - tl.max(tops, 1)[:, None])
        whole = tl.sum(totals * share, 1)
        mix = tl.sum(mixed * share[:, :, None], 1) / tl.maximum(whole, 1e-30)[:, None]
        place = head[:, None] * D + channel[None, :]
        tl.store(target_ptr + place, mix.to(target_ptr.dtype.element_ty), mask=(head < G)[:, None])


@triton.jit
def _read(
    q,
    keys_ptr,
    values_ptr,
    table_ptr,
    first,
    last,
    scale,
    K: tl.constexpr,
    QUERIES: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Return the running softmax of each query: its peak, its sum and its mixture of values."""
    place = tl.arange(0, BLOCK)
    channel = tl.arange(0, D)
    top = tl.full((QUERIES,), LOWEST, tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    for start in tl.range(first, last, BLOCK, num_stages=STAGES):
        # the last position replaces those beyond it, whose slots may hold NaN
        position = tl.minimum(start + place, last - 1)
        page = tl.load(table_ptr + position // PAGE).to(tl.int64)
        slot = page * PAGE + position % PAGE
        source = slot[:, None] * (K * D) + channel[None, :]
        k = tl.load(keys_ptr + source).to(q.dtype)
        v = tl.load(values_ptr + source).to(q.dtype)
        top, total, mixed = take_group(q, k, v, start + place < last, scale, top, total, mixed)
    return top, total, mixed


@triton.jit
def take_group(q, k, v, there, scale, top, total, mixed):
    """Return the running softmaxes of all queries with a block of positions more; k and v have q's dtype."""
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    score = tl.where(there[None, :], score, float("-inf"))
    higher = tl.maximum(top, tl.max(score, 1))
    decay = tl.exp2(top - higher)
    weight = tl.exp2(score - higher[:, None])
    total = total * decay + tl.sum(weight, 1)
    mixed = tl.dot(weight.to(q.dtype), v, mixed * decay[:, None], input_precision="ieee")
    return higher, total, mixed
