# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Rotation, the write to the KV pool and attention of grouped heads in one launch. Letters as in `reference`.

Programs work as in `grouped_decode`. Each normalises and rotates the queries of its key head itself, and the key of the
row's last position; the program whose range has that position stores its key and value.
"""

from math import e, log2
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.paged_attention.decode import LOWEST, Ranges, scratch
from stoop_worker.kernels.paged_attention.grouped_decode import (
    end_groups,
    group_ranges,
    heads_at_once,
    queries_of,
    take_group,
)
from stoop_worker.kernels.paged_attention.layout import PagedLayout
from stoop_worker.kernels.rotate_write.kernel import fit
from stoop_worker.kernels.rotate_write.places import HeadNorms, Places
from stoop_worker.kernels.rotate_write.reference import query_heads

__all__ = ["rotate_attend_groups"]

_HELD = 1  # blocks of positions read before the product has ended


def rotate_attend_groups(
    qkv_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    norms: HeadNorms | None = None,
    ranges: Ranges | None = None,
) -> Tensor:
    """Compute `reference.rotate_attend_groups`; the rules of `decode` for captures and calls on one device apply."""
    key_heads, head_dim = pool.shape[3:]
    batch, heads = qkv_BN.shape[0], query_heads(qkv_BN, pool)
    group, table_BP, positions = heads // key_heads, layout.page_table_BP, places.positions
    out_BHD = torch.empty((batch, heads, head_dim), dtype=qkv_BN.dtype, device=qkv_BN.device)
    if batch == 0:
        return out_BHD.flatten(1)
    if ranges is None:
        ranges = group_ranges(out_BHD, pool, table_BP.shape[1] * layout.page_size)
    parts, sums, arrivals = scratch(batch, heads, head_dim, ranges.splits, qkv_BN.device)
    kernel: Any = _rotate_attend_groups
    kernel[(key_heads, ranges.splits, batch)](
        qkv_BN,
        positions,
        positions if places.axis_F is None else places.axis_F,
        places.table_SF2,
        places.slots_T,
        qkv_BN if norms is None else norms.q_D,
        qkv_BN if norms is None else norms.k_D,
        pool[0],
        pool[1],
        table_BP,
        layout.context_lens_B,
        out_BHD,
        parts,
        sums,
        arrivals,
        qkv_BN.stride(0),
        table_BP.stride(0),
        0.0 if norms is None else norms.epsilon,
        log2(e) * head_dim**-0.5,
        K=key_heads,
        G=group,
        QUERIES=queries_of(group),
        HEADS=heads_at_once(group, head_dim, ranges.splits),
        D=head_dim,
        F=places.table_SF2.shape[1],
        AXES=0 if places.axis_F is None else positions.shape[1],
        NORMS=norms is not None,
        PAGE=layout.page_size,
        SPLITS=ranges.splits,
        BLOCK=ranges.block,
        HELD=_HELD,
        STAGES=ranges.stages,
        num_warps=ranges.warps,
        **early.options(qkv_BN.device, batch),
    )
    return out_BHD.flatten(1)


@triton.jit
def _rotate_attend_groups(
    qkv_ptr,
    positions_ptr,
    axis_ptr,
    rotations_ptr,
    slots_ptr,
    q_norm_ptr,
    k_norm_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    contexts_ptr,
    out_ptr,
    parts_ptr,
    sums_ptr,
    arrivals_ptr,
    qkv_stride,
    table_stride,
    epsilon,
    scale,
    K: tl.constexpr,
    G: tl.constexpr,
    QUERIES: tl.constexpr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    AXES: tl.constexpr,
    NORMS: tl.constexpr,
    PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    HELD: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    key_head = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.program_id(2)
    early.let_next_start(EARLY)

    # independent of this step's product: positions, lengths, pages, and the keys and values of earlier steps
    table_ptr += row * table_stride
    keys_ptr += key_head * D
    values_ptr += key_head * D
    qkv_ptr += row * qkv_stride
    channel = tl.arange(0, D)
    place = tl.arange(0, BLOCK)
    context = tl.load(contexts_ptr + row)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    pair = channel // 2
    rotated = channel < 2 * F
    if AXES > 0:
        position = tl.load(positions_ptr + row * AXES + tl.load(axis_ptr + pair, mask=rotated, other=0))
    else:
        position = tl.load(positions_ptr + row)
    rotation_ptr = rotations_ptr + position * (2 * F) + 2 * pair
    cos = tl.load(rotation_ptr, mask=rotated, other=0.0)
    sin = tl.load(rotation_ptr + 1, mask=rotated, other=0.0)
    blocks = tl.maximum(tl.cdiv(context, BLOCK), 1)
    each = tl.cdiv(blocks, SPLITS)
    active = tl.cdiv(blocks, each)
    first = split * each * BLOCK
    last = tl.minimum(first + each * BLOCK, context)
    held = ()
    for block in tl.static_range(HELD):
        position = first + block * BLOCK + place
        there = position < last
        page = tl.load(table_ptr + position // PAGE, mask=there, other=0).to(tl.int64)
        source = (page * PAGE + position % PAGE)[:, None] * (K * D) + channel[None, :]
        # bypass the nearest cache: the last position is being written
        k = tl.load(keys_ptr + source, mask=there[:, None], other=0.0, cache_modifier=".cg")
        v = tl.load(values_ptr + source, mask=there[:, None], other=0.0, cache_modifier=".cg")
        held = held + (k, v)  # type: ignore[assignment]  # noqa: RUF005
    early.wait(EARLY)
    if split >= active:
        return

    member = tl.arange(0, QUERIES)
    q = _rotated(qkv_ptr + key_head * G * D, member, G, q_norm_ptr, cos, sin, epsilon, D, F, NORMS)
    key_ptr = qkv_ptr + K * G * D + key_head * D
    new_k = fit(_rotated(key_ptr, tl.arange(0, 1), 1, k_norm_ptr, cos, sin, epsilon, D, F, NORMS), keys_ptr)
    new_v = fit(tl.load(key_ptr + K * D + channel[None, :]), values_ptr)
    newest = -1
    if slot >= 0:
        newest = context - 1
        if split == active - 1:
            tl.store(keys_ptr + slot * (K * D) + channel[None, :], new_k)
            tl.store(values_ptr + slot * (K * D) + channel[None, :], new_v)
    top = tl.full((QUERIES,), LOWEST, tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    for block in tl.static_range(HELD):
        position = first + block * BLOCK + place
        here = (position == newest)[:, None]
        k = tl.where(here, new_k, held[2 * block]).to(q.dtype)
        v = tl.where(here, new_v, held[2 * block + 1]).to(q.dtype)
        top, total, mixed = take_group(q, k, v, position < last, scale, top, total, mixed)
    for start in tl.range(first + HELD * BLOCK, last, BLOCK, num_stages=STAGES):
        # the last position replaces those beyond it, whose slots may hold NaN
        position = tl.minimum(start + place, last - 1)
        page = tl.load(table_ptr + position // PAGE).to(tl.int64)
        source = (page * PAGE + position % PAGE)[:, None] * (K * D) + channel[None, :]
        here = (position == newest)[:, None]
        k = tl.where(here, new_k, tl.load(keys_ptr + source)).to(q.dtype)
        v = tl.where(here, new_v, tl.load(values_ptr + source)).to(q.dtype)
        top, total, mixed = take_group(q, k, v, start + place < last, scale, top, total, mixed)
    end_groups(
        top,
        total,
        mixed,
        out_ptr + (row * K + key_head) * G * D,
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
def _rotated(
    source_ptr,
    head,
    COUNT: tl.constexpr,
    norm_ptr,
    cos,
    sin,
    epsilon,
    D: tl.constexpr,
    F: tl.constexpr,
    NORMS: tl.constexpr,
):
    """Return the first COUNT heads, the first 2 F of their D channels rotated, in the source's dtype; then zeros."""
    channel = tl.arange(0, D)[None, :]
    rotated = channel < 2 * F
    inside = (head < COUNT)[:, None]
    first = tl.where(rotated, channel // 2, channel)
    second = tl.where(rotated, F + channel // 2, channel)
    real = tl.load(source_ptr + head[:, None] * D + first, mask=inside, other=0.0).to(tl.float32)
    imaginary = tl.load(source_ptr + head[:, None] * D + second, mask=inside, other=0.0).to(tl.float32)
    if NORMS:
        # a rotated channel stands in two places, and in each beside its partner
        squares = tl.sum(0.5 * (real * real + imaginary * imaginary), 1)
        scale = (1.0 / tl.sqrt(squares / D + epsilon))[:, None]
        dtype = source_ptr.dtype.element_ty
        real = (real * scale * tl.load(norm_ptr + first).to(tl.float32)).to(dtype).to(tl.float32)
        imaginary = (imaginary * scale * tl.load(norm_ptr + second).to(tl.float32)).to(dtype).to(tl.float32)
    cos, sin = cos[None, :], sin[None, :]
    value = tl.where(channel % 2 == 0, real * cos - imaginary * sin, real * sin + imaginary * cos)
    return tl.where(rotated, value, real).to(source_ptr.dtype.element_ty)
