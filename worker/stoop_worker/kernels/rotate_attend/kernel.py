# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""One launch between a layer's products. Letters as in `reference`.

Programs in the first H columns of the grid work as in `decode`, and each rotates its head's query itself. The program
with a row's last position takes that key and value from the product, and stores them. The other columns compute GELU.
"""

from math import e, log2, sqrt
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.paged_attention.decode import LOWEST, Ranges, end, merge, ranges_for, scratch, take
from stoop_worker.kernels.paged_attention.layout import PagedLayout
from stoop_worker.kernels.rotate_write import Places
from stoop_worker.kernels.rotate_write.kernel import fit, gelu

__all__ = ["rotate_attend"]

_GELU_BLOCK = 512
_HELD = 2  # blocks of positions read before the product has ended


def rotate_attend(
    made_BN: Tensor,
    places: Places,
    pool: Tensor,
    layout: PagedLayout,
    *,
    out_BM: Tensor,
    ranges: Ranges | None = None,
) -> None:
    """Compute `reference.rotate_attend` without heat; the rules of `decode` for captures and calls apply here too."""
    heads, head_dim = pool.shape[3:]
    table_BP = layout.page_table_BP
    batch = made_BN.shape[0]
    if batch == 0:
        return
    if ranges is None:
        ranges = ranges_for(batch, heads, table_BP.shape[1] * layout.page_size)
    columns = made_BN.shape[1] - 3 * heads * head_dim
    parts, sums, arrivals = scratch(batch, heads, head_dim, ranges.splits, made_BN.device)
    beside = triton.cdiv(triton.cdiv(columns, _GELU_BLOCK), ranges.splits)
    kernel: Any = _rotate_attend
    kernel[(heads + beside, ranges.splits, batch)](
        made_BN,
        places.positions,
        places.table_SF2,
        places.slots_T,
        pool[0],
        pool[1],
        table_BP,
        layout.context_lens_B,
        out_BM,
        parts,
        sums,
        arrivals,
        made_BN.stride(0),
        table_BP.stride(0),
        out_BM.stride(0),
        log2(e) / sqrt(head_dim),
        H=heads,
        D=head_dim,
        F=places.table_SF2.shape[1],
        PAGE=layout.page_size,
        COLUMNS=columns,
        GELU_BLOCK=_GELU_BLOCK,
        SPLITS=ranges.splits,
        BLOCK=ranges.block,
        HELD=_HELD,
        STAGES=ranges.stages,
        num_warps=ranges.warps,
        **early.options(made_BN.device, batch),
    )


@triton.jit
def _rotate_attend(
    made_ptr,
    positions_ptr,
    rotations_ptr,
    slots_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    contexts_ptr,
    out_ptr,
    parts_ptr,
    sums_ptr,
    arrivals_ptr,
    made_stride,
    table_stride,
    out_stride,
    scale,
    H: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    PAGE: tl.constexpr,
    COLUMNS: tl.constexpr,
    GELU_BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    HELD: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
):
    head = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.program_id(2)
    C: tl.constexpr = H * D
    made_ptr += row * made_stride
    out_ptr += row * out_stride
    early.let_next_start(EARLY)
    if head >= H:
        early.wait(EARLY)
        gelu(made_ptr + 3 * C, out_ptr + C, (head - H) * SPLITS + split, COLUMNS, GELU_BLOCK)
        return

    # independent of this step's product: positions, lengths, pages, and the keys and values of earlier steps
    table_ptr += row * table_stride
    made_ptr += head * D
    keys_ptr += head * D
    values_ptr += head * D
    channel = tl.arange(0, D)
    place = tl.arange(0, BLOCK)
    context = tl.load(contexts_ptr + row)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    rotation_ptr = rotations_ptr + tl.load(positions_ptr + row) * (2 * F) + channel // 2 * 2
    cos = tl.load(rotation_ptr, mask=channel < 2 * F, other=0.0)
    sin = tl.load(rotation_ptr + 1, mask=channel < 2 * F, other=0.0)
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
        source = (page * PAGE + position % PAGE)[:, None] * C + channel[None, :]
        # bypass the nearest cache: the last position is being written
        k = tl.load(keys_ptr + source, mask=there[:, None], other=0.0, cache_modifier=".cg")
        v = tl.load(values_ptr + source, mask=there[:, None], other=0.0, cache_modifier=".cg")
        held = held + (k, v)  # type: ignore[assignment]  # noqa: RUF005
    early.wait(EARLY)
    if split >= active:
        return

    q = _rotated(made_ptr, cos, sin, D, F).to(tl.float32) * scale
    new_k = fit(_rotated(made_ptr + C, cos, sin, D, F), keys_ptr)
    new_v = fit(tl.load(made_ptr + 2 * C + channel), values_ptr)
    newest = -1
    if slot >= 0:
        newest = context - 1
        if split == active - 1:
            tl.store(keys_ptr + slot * C + channel, new_k)
            tl.store(values_ptr + slot * C + channel, new_v)
    top = tl.full((BLOCK,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, D), tl.float32)
    for block in tl.static_range(HELD):
        position = first + block * BLOCK + place
        k = _with(held[2 * block], new_k, position == newest)
        v = _with(held[2 * block + 1], new_v, position == newest)
        top, total, mixed = take(q, k, v, position < last, top, total, mixed)
    for start in tl.range(first + HELD * BLOCK, last, BLOCK, num_stages=STAGES):
        # the last position replaces those beyond it, whose slots may hold NaN
        position = tl.minimum(start + place, last - 1)
        page = tl.load(table_ptr + position // PAGE).to(tl.int64)
        source = (page * PAGE + position % PAGE)[:, None] * C + channel[None, :]
        k = _with(tl.load(keys_ptr + source), new_k, position == newest)
        v = _with(tl.load(values_ptr + source), new_v, position == newest)
        top, total, mixed = take(q, k, v, start + place < last, top, total, mixed)

    peak, whole, mix = merge(top, total, mixed)
    target_ptr = out_ptr + head * D + channel
    end(peak, whole, mix, target_ptr, parts_ptr, sums_ptr, arrivals_ptr, row * H + head, split, active, D, SPLITS)


@triton.jit
def _rotated(source_ptr, cos, sin, D: tl.constexpr, F: tl.constexpr):
    """Return a head's D channels, the first 2 F rotated, in the source's dtype."""
    channel = tl.arange(0, D)
    rotated = channel < 2 * F
    real = tl.load(source_ptr + tl.where(rotated, channel // 2, channel)).to(tl.float32)
    imaginary = tl.load(source_ptr + tl.where(rotated, F + channel // 2, channel)).to(tl.float32)
    value = tl.where(channel % 2 == 0, real * cos - imaginary * sin, real * sin + imaginary * cos)
    return tl.where(rotated, value, real).to(source_ptr.dtype.element_ty)


@triton.jit
def _with(stored, new, here):
    """Return `stored` as float32, replaced by `new` where `here` is true."""
    return tl.where(here[:, None], new.to(tl.float32)[None, :], stored.to(tl.float32))
