"""Times paged attention at the sizes of Moondream 2: 32 heads of 64, pages of 16, bfloat16."""

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.kernels.row import Row, check, microseconds, microseconds_captured
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.decode import Ranges, decode
from stoop_worker.kernels.paged_attention.prefill import Tile, prefill

__all__ = ["alternatives", "rows"]

HEADS, HEAD_DIM, PAGE = 32, 64, 16
WIDTH = HEADS * HEAD_DIM
PREFIX = 730
DECODES = [(1, 900), (8, 900), (16, 900), (64, 900), (128, 900), (64, 2000)]
PREFILLS = [(8, 750, 0), (1, 750, 0), (8, 20, 730), (8, 750, -PREFIX)]
"""Sequences, rows of each, and positions in the cache; a negative number means plain causal."""
SPLITS = {1: (8, 16, 32), 16: (2, 4, 8), 64: (1, 2, 4)}
RANGES = [(block, warps, stages) for block, warps in ((32, 2), (64, 4), (128, 4), (128, 8)) for stages in (2, 3, 4)]
TILES = [
    Tile(rows, block, warps, stages)
    for rows, block, warps in ((128, 64, 4), (128, 64, 8), (128, 128, 8), (128, 128, 4), (64, 64, 4), (128, 32, 4))
    for stages in (2, 3, 4)
]


def layout_of(batch: int, rows: int, context: int, prefix: int) -> PagedLayout:
    """Return equal sequences whose pages are scattered as after hours of work."""
    pages = -(-context // PAGE)
    table = torch.randperm(batch * pages, device="cuda").view(batch, pages).int()
    whole = partial(torch.full, (batch,), dtype=torch.int32, device="cuda")
    return PagedLayout(
        cu_seqlens_B1=torch.arange(batch + 1, dtype=torch.int32, device="cuda") * rows,
        context_lens_B=whole(fill_value=context),
        page_table_BP=table,
        prefix_lens_B=whole(fill_value=prefix),
        cu_seqlens=tuple(range(0, batch * rows + 1, rows)),
        context_lens=(context,) * batch,
        prefix_lens=(prefix,) * batch,
        page_size=PAGE,
    )


def pools_of(layout: PagedLayout, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """Return pools for enough layers that none stays in the cache."""
    pages = layout.page_table_BP.numel()
    layers = max(2, min(24, 600_000_000 // (pages * PAGE * WIDTH * 4)))
    return [
        torch.randn(2, pages, PAGE, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16).to(dtype)
        for _ in range(layers)
    ]


def queries(count: int) -> Tensor:
    return torch.randn(count, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)


def plain(batch: int, rows: int, context: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v without pages, in the layout that is fastest for the library."""
    q, k, v = (
        torch.randn(batch, HEADS, count, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
        for count in (rows, context, context)
    )
    return q, k, v


def decode_row(batch: int, context: int, dtype: torch.dtype = torch.bfloat16, ranges: Ranges | None = None) -> Row:
    layout = layout_of(batch, 1, context, 0)
    pools, q = pools_of(layout, dtype), queries(batch)
    exact = reference.paged_attention(q.float(), pools[0], layout)
    check(decode(q, pools[0], layout, ranges=ranges), exact, 1e-2)
    ours = microseconds_captured([partial(decode, q, pool, layout, ranges=ranges) for pool in pools])
    others = [plain(batch, 1, context) for _ in range(max(2, len(pools) // 2))] if ranges is None else []
    theirs = (
        microseconds_captured([partial(functional.scaled_dot_product_attention, *each) for each in others])
        if others
        else None
    )
    moved = batch * context * 2 * WIDTH * pools[0].element_size()
    kind = "fp8" if dtype == torch.float8_e4m3fn else "bf16"
    name = f"decode {kind}" if ranges is None else str(ranges).replace("Ranges", "decode")
    rate = f"{moved / ours / 1e6:.2f} TB/s"
    return Row(name, f"{batch} x {context}", ours, theirs, "SDPA, no pages" if others else "", rate)


def prefill_row(batch: int, count: int, cached: int, tile: Tile | None = None) -> Row:
    prefix = PREFIX if cached >= 0 else 0
    context = count + max(0, cached)
    layout = layout_of(batch, count, context, prefix)
    pool, q = pools_of(layout)[0], queries(batch * count)
    exact = reference.paged_attention(q.float(), pool.float(), layout)
    call = partial(paged_attention, q, pool, layout) if tile is None else partial(prefill, q, pool, layout, tile=tile)
    check(call(), exact, 1e-2)
    ours = microseconds(call)
    theirs = None
    if tile is None:
        causal = cached < 0
        theirs = microseconds(
            partial(functional.scaled_dot_product_attention, *plain(batch, count, context), is_causal=causal)
        )
    name = "prefill" if tile is None else str(tile).replace("Tile", "prefill")
    rate = f"{4 * batch * count * context * WIDTH / ours / 1e6:.0f} TFLOP/s"
    shape = f"{batch} x {count} over {context}, prefix {prefix}"
    return Row(name, shape, ours, theirs, "SDPA, no pages, no prefix" if theirs else "", rate)


def rows() -> list[Row]:
    """Return the sizes that occur in the engine."""
    return [
        *(decode_row(*each) for each in DECODES),
        decode_row(64, 900, torch.float8_e4m3fn),
        *(prefill_row(*each) for each in PREFILLS),
    ]


def alternatives() -> list[Row]:
    """Return other splits of the work."""
    decodes = [
        decode_row(batch, 900, ranges=Ranges(splits, *others))
        for batch, several in SPLITS.items()
        for splits in several
        for others in RANGES
    ]
    return [*decodes, *(prefill_row(8, 750, 0, tile) for tile in TILES)]
