"""Times paged attention with fewer key heads than query heads, at the sizes of real decoders; bfloat16, pages of 16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.paged_attention import PAGE, layout_of
from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.decode import Ranges
from stoop_worker.kernels.paged_attention.grouped_decode import decode_groups
from stoop_worker.kernels.paged_attention.prefill import Tile, prefill

__all__ = ["alternatives", "rows"]

Sizes = tuple[int, int, int]
"""Query heads, key heads, head dim."""

LLAMA_1B, LLAMA_3B, QWEN_4B = (32, 8, 64), (24, 8, 128), (32, 8, 128)
DECODES = [(1, 1000), (1, 16000), (16, 1000), (64, 1000), (64, 4000)]
PREFILLS = [(1, 1000), (8, 1000), (1, 8000)]
RANGES = [
    Ranges(splits, block, warps, stages)
    for splits in (1, 2, 4)
    for block in (16, 32, 64, 128)
    for warps in (2, 4, 8)
    for stages in (2, 3, 4)
]
TILES = [
    Tile(rows, block, warps, stages)
    for rows, block, warps in ((64, 64, 4), (128, 64, 8), (128, 128, 8), (128, 32, 4))
    for stages in (2, 3)
]


def pools_of(layout: PagedLayout, sizes: Sizes) -> list[Tensor]:
    """Return pools for enough layers that none stays in the cache."""
    pages, (_, key_heads, head_dim) = layout.page_table_BP.numel(), sizes
    layers = max(2, min(24, 600_000_000 // (pages * PAGE * key_heads * head_dim * 4)))
    shape = (2, pages, PAGE, key_heads, head_dim)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(layers)]


def plain(batch: int, rows: int, context: int, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v for a library without pages."""
    heads, key_heads, head_dim = sizes
    made = partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    k, v = (made(batch, key_heads, context, head_dim) for _ in range(2))
    return made(batch, heads, rows, head_dim), k, v


def decode_row(sizes: Sizes, batch: int, context: int, ranges: Ranges | None = None) -> Row:
    heads, key_heads, head_dim = sizes
    layout = layout_of(batch, 1, context, 0)
    pools = pools_of(layout, sizes)
    q = torch.randn(batch, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    exact = reference.paged_attention(q.float(), pools[0], layout)
    check(decode_groups(q, pools[0], layout, ranges=ranges), exact, 1e-2)
    ours = microseconds_captured([partial(decode_groups, q, pool, layout, ranges=ranges) for pool in pools])
    theirs = None
    if ranges is None:
        sdpa = partial(functional.scaled_dot_product_attention, enable_gqa=True)
        theirs = microseconds_captured([partial(sdpa, *plain(batch, 1, context, sizes)) for _ in pools])
    rate = f"{batch * context * 4 * key_heads * head_dim / ours / 1e6:.2f} TB/s"
    name = "grouped decode" if ranges is None else str(ranges).replace("Ranges", "grouped")
    shape = f"{batch} x {context}, {heads}/{key_heads} x {head_dim}"
    return Row(name, shape, ours, theirs, "SDPA, no pages" if theirs else "", rate)


def prefill_row(sizes: Sizes, batch: int, count: int, tile: Tile | None = None) -> Row:
    heads, key_heads, head_dim = sizes
    layout = layout_of(batch, count, count, 0)
    pool = pools_of(layout, sizes)[0]
    q = torch.randn(batch * count, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    exact = reference.paged_attention(q.float(), pool.float(), layout)
    call = partial(paged_attention, q, pool, layout) if tile is None else partial(prefill, q, pool, layout, tile=tile)
    check(call(), exact, 1e-2)
    ours = microseconds(call)
    theirs = None
    if tile is None:
        sdpa = partial(functional.scaled_dot_product_attention, is_causal=True, enable_gqa=True)
        theirs = microseconds(partial(sdpa, *plain(batch, count, count, sizes)))
    rate = f"{2 * batch * count * count * heads * head_dim / ours / 1e6:.0f} TFLOP/s"
    name = "grouped prefill" if tile is None else str(tile).replace("Tile", "grouped")
    shape = f"{batch} x {count}, {heads}/{key_heads} x {head_dim}"
    return Row(name, shape, ours, theirs, "SDPA, no pages" if theirs else "", rate)


def rows() -> list[Row]:
    """Return decodes and causal prefills."""
    sizes = (LLAMA_1B, LLAMA_3B, QWEN_4B)
    return [
        *(decode_row(each, *case) for each in sizes for case in DECODES),
        *(prefill_row(each, *case) for each in sizes for case in PREFILLS),
    ]


def alternatives() -> list[Row]:
    """Return other splits of the work."""
    sizes = (LLAMA_1B, QWEN_4B)
    return [
        *(decode_row(each, 64, 1000, ranges) for each in sizes for ranges in RANGES),
        *(prefill_row(each, 8, 1000, tile) for each in sizes for tile in TILES),
    ]
