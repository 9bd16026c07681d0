# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Attention of many query rows a sequence. Letters as in `reference`.

A program takes one head of ROWS query rows of one sequence, and looks up the sequence itself. The launch depends only
on the numbers of rows and sequences, so that a captured launch follows the tensors. Row i sees the positions up to its
limit, which is i, or the prefix's last position if i lies in the prefix. Limits never fall from row to row. Therefore
every row of a tile sees the positions that the first row sees, without a mask, and no row sees a position that the last
row does not see.
"""

from dataclasses import dataclass
from math import e, log2
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.paged_attention.layout import PagedLayout, tiles

__all__ = ["Tile", "prefill", "tile_for"]

_SEQUENCES = 32  # looked at together by a program: as many as one warp can add up


@dataclass(frozen=True, slots=True)
class Tile:
    """The number of query rows of a program, and of positions read at once; powers of two of at least 16."""

    rows: int
    block: int = 64
    warps: int = 4
    stages: int = 3


def tile_for(dtype: torch.dtype, head_dim: int) -> Tile:
    """Choose the tile for queries of `dtype` and `head_dim`."""
    if dtype == torch.float32:
        # exact products use registers, not the tensor cores
        return Tile(rows=32, block=32, stages=2)
    # on some GPUs wide heads leave no shared memory for a third stage
    return Tile(rows=64, stages=3 if head_dim <= 64 else 2)


def prefill(
    q_THD: Tensor,
    pool: Tensor,
    layout: PagedLayout,
    *,
    scale: float | None = None,
    out_TM: Tensor | None = None,
    tile: Tile | None = None,
) -> Tensor:
    """Compute `reference.paged_attention` for D a power of two of at least 16; the pool's dtype may differ from q's.

    It reads only the layout's tensors. A sequence may have no rows. Rows after the last sequence's are padding: nothing
    is written for them.
    """
    rows, heads, head_dim = q_THD.shape
    sequences = layout.context_lens_B.shape[0]
    if tile is None:
        tile = tile_for(q_THD.dtype, head_dim)
    if scale is None:
        scale = head_dim**-0.5
    q_TC = q_THD.reshape(rows, heads * head_dim)
    out = torch.empty_like(q_TC, memory_format=torch.contiguous_format) if out_TM is None else out_TM
    kernel: Any = _prefill
    kernel[(tiles(rows, sequences, tile.rows), heads)](
        q_TC,
        pool[0],
        pool[1],
        layout.page_table_BP,
        layout.cu_seqlens_B1,
        layout.context_lens_B,
        layout.prefix_lens_B,
        out,
        sequences,
        q_TC.stride(0),
        layout.page_table_BP.stride(0),
        out.stride(0),
        log2(e) * scale,
        K=pool.shape[3],
        G=heads // pool.shape[3],
        D=head_dim,
        PAGE=layout.page_size,
        ROWS=tile.rows,
        BLOCK=tile.block,
        STAGES=tile.stages,
        SEQUENCES=_SEQUENCES,
        num_warps=tile.warps,
    )
    return out[:, : heads * head_dim].view(q_THD.shape)


# batches and tables differ from step to step, so their divisibility and alignment must not trigger a recompilation
@triton.jit(do_not_specialize=["table_ptr", "starts_ptr", "contexts_ptr", "prefixes_ptr", "sequences", "table_stride"])
def _prefill(
    q_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    starts_ptr,
    contexts_ptr,
    prefixes_ptr,
    out_ptr,
    sequences,
    q_stride,
    table_stride,
    out_stride,
    scale,
    K: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    SEQUENCES: tl.constexpr,
):
    sequence, tile = _whose(tl.program_id(0), starts_ptr, sequences, ROWS, SEQUENCES)
    if sequence == sequences:
        return
    head = tl.program_id(1)
    start = tl.load(starts_ptr + sequence)
    count = tl.load(starts_ptr + sequence + 1) - start
    context = tl.load(contexts_ptr + sequence)
    prefix = tl.load(prefixes_ptr + sequence)
    row = tile * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, D)
    inside = (row < count)[:, None]
    place = (start + row)[:, None]
    q = tl.load(q_ptr + place * q_stride + head * D + channel[None, :], mask=inside, other=0.0)

    before = context - count
    limit = _limit(before + row, prefix, context)
    unmasked = (_limit(before + tile * ROWS, prefix, context) + 1) // BLOCK * BLOCK
    last = _limit(before + tl.minimum(tile * ROWS + ROWS, count) - 1, prefix, context) + 1
    table_ptr += sequence * table_stride
    key_head = head // G if G > 1 else head
    keys_ptr += key_head * D
    values_ptr += key_head * D
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, D), tl.float32)
    top, total, mixed = _visit(
        top,
        total,
        mixed,
        q,
        keys_ptr,
        values_ptr,
        table_ptr,
        limit,
        0,
        unmasked,
        context,
        scale,
        K,
        D,
        PAGE,
        BLOCK,
        STAGES,
        False,
    )
    top, total, mixed = _visit(
        top,
        total,
        mixed,
        q,
        keys_ptr,
        values_ptr,
        table_ptr,
        limit,
        unmasked,
        last,
        context,
        scale,
        K,
        D,
        PAGE,
        BLOCK,
        STAGES,
        True,
    )
    target_ptr = out_ptr + place * out_stride + head * D + channel[None, :]
    tl.store(target_ptr, (mixed / total[:, None]).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _whose(tile, starts_ptr, sequences, ROWS: tl.constexpr, SEQUENCES: tl.constexpr):
    """Return a tile's sequence and its number within it; for a tile beyond the last, the number of sequences.

    Tiles are numbered across all sequences; a sequence without rows has none.
    """
    owner = 0
    before = 0  # tiles of the sequences before this tile's
    seen = 0
    for first in range(0, sequences, SEQUENCES):
        sequence = first + tl.arange(0, SEQUENCES)
        inside = sequence < sequences
        start = tl.load(starts_ptr + sequence, mask=inside, other=0)
        end = tl.load(starts_ptr + sequence + 1, mask=inside, other=0)
        count = (end - start + ROWS - 1) // ROWS
        passed = inside & (seen + tl.cumsum(count, 0) <= tile)
        owner += tl.sum(passed.to(tl.int32), 0)
        before += tl.sum(tl.where(passed, count, 0), 0)
        seen += tl.sum(count, 0)
    return owner, tile - before


@triton.jit
def _limit(row, prefix, context):
    """Return the last position that a row sees."""
    return tl.minimum(tl.where(row < prefix, prefix - 1, row), context - 1)


@triton.jit
def _visit(
    top,
    total,
    mixed,
    q,
    keys_ptr,
    values_ptr,
    table_ptr,
    limit,
    first,
    last,
    context,
    scale,
    K: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add the positions from `first` to `last` to the rows' running softmax."""
    channel = tl.arange(0, D)
    for start in tl.range(first, last, BLOCK, num_stages=STAGES):
        position = start + tl.arange(0, BLOCK)
        # the last position replaces those beyond it, whose slots may hold NaN
        source = tl.minimum(position, context - 1) if MASKED else position
        page = tl.load(table_ptr + source // PAGE).to(tl.int64)
        slot = page * PAGE + source % PAGE
        offset = slot[:, None] * (K * D) + channel[None, :]
        k = tl.load(keys_ptr + offset).to(q.dtype)
        v = tl.load(values_ptr + offset).to(q.dtype)
        score = tl.dot(q, tl.trans(k), input_precision="ieee")
        if MASKED:
            score = tl.where(position[None, :] <= limit[:, None], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1) * scale)
        weight = tl.exp2(score * scale - higher[:, None])
        decay = tl.exp2(top - higher)
        total = total * decay + tl.sum(weight, 1)
        mixed = tl.dot(weight.to(q.dtype), v, mixed * decay[:, None], input_precision="ieee")
        top = higher
    return top, total, mixed
