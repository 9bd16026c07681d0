"""Rotation, writing to the pool and attention over pages as compiled kernels, at the sizes of Moondream 2."""

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.decode import Ranges, decode
from stoop_worker.kernels.rotate_attend import kernel as together
from stoop_worker.kernels.rotate_attend import reference as apart
from stoop_worker.kernels.rotate_write import Places, rotate_write, rotate_write_gelu, rotation_table
from stoop_worker.kernels.rotate_write import reference as plain

HEADS, HEAD_DIM, PAGE, PREFIX, MLP = 32, 64, 16, 730, 8192
WIDTH = HEADS * HEAD_DIM
BOUND = {torch.bfloat16: 5e-3, torch.float16: 1e-3, torch.float32: 1e-5}
NO_PAGE = 2**30

Rows = list[tuple[int, int, int]]
"""The context, the query rows and the prefix of each sequence."""


def layout_of(rows: Rows, page: int = PAGE) -> PagedLayout:
    """Return a layout of mixed pages; reading a page number beyond the used ones would fail."""
    contexts, counts, prefixes = (tuple(column) for column in zip(*rows, strict=True))
    used = [-(-context // page) for context in contexts]
    order = torch.split(torch.randperm(sum(used)).int(), used)
    table = torch.full((len(rows), max(used) + 1), NO_PAGE, dtype=torch.int32)
    for row, pages in enumerate(order):
        table[row, : len(pages)] = pages
    return PagedLayout(
        cu_seqlens_B1=torch.tensor((0, *accumulate(counts)), dtype=torch.int32, device="cuda"),
        context_lens_B=torch.tensor(contexts, dtype=torch.int32, device="cuda"),
        page_table_BP=table.to("cuda"),
        prefix_lens_B=torch.tensor(prefixes, dtype=torch.int32, device="cuda"),
        cu_seqlens=(0, *accumulate(counts)),
        context_lens=contexts,
        prefix_lens=prefixes,
        page_size=page,
    )


def filled(layout: PagedLayout, dtype: torch.dtype, heads: int = HEADS, head_dim: int = HEAD_DIM) -> Tensor:
    """Return a pool that is NaN wherever no position lies."""
    page = layout.page_size
    pages = sum(-(-context // page) for context in layout.context_lens)
    pool = torch.full((2, pages, page, heads, head_dim), torch.nan, dtype=dtype, device="cuda")
    for row, context in enumerate(layout.context_lens):
        positions = torch.arange(context, device="cuda")
        pages_S = layout.page_table_BP[row].long()[positions // page]
        pool[:, pages_S, positions % page] = torch.randn(2, context, heads, head_dim, device="cuda").to(dtype)
    return pool


def queries(layout: PagedLayout, dtype: torch.dtype, heads: int = HEADS, head_dim: int = HEAD_DIM) -> Tensor:
    return torch.randn(layout.cu_seqlens[-1], heads, head_dim, device="cuda").to(dtype)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


DECODES: dict[str, Rows] = {
    "one": [(900, 1, 0)],
    "short": [(context, 1, 0) for context in range(1, 41)],
    "many": [(context, 1, PREFIX) for context in range(737, 737 + 3 * 64, 3)],
    "more than fill the device": [(100 + context, 1, 0) for context in range(200)],
}
PREFILLS: dict[str, Rows] = {
    "images": [(750, 750, PREFIX)] * 8,
    "of every kind": [(750, 750, PREFIX), (2048, 129, PREFIX), (64, 64, 0), (65, 1, 0), (300, 300, 0), (731, 1, 730)],
    "short over a cached prefix": [(750, 20, PREFIX), (737, 7, PREFIX), (800, 64, PREFIX)],
    "the prefix alone": [(730, 730, PREFIX), (128, 128, 128)],
    "more than a warp": [(64 + number % 3, 64, 0) for number in range(70)],
}


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("rows", DECODES.values(), ids=DECODES.keys())
def test_decode(rows: Rows, dtype: torch.dtype) -> None:
    layout = layout_of(rows)
    pool, q = filled(layout, dtype), queries(layout, dtype)
    out = torch.full((len(rows), WIDTH + MLP), torch.nan, dtype=dtype, device="cuda")
    found = paged_attention(q, pool, layout, out_TM=out)
    assert error(found, reference.paged_attention(q.double(), pool, layout)) < BOUND[dtype]
    assert out[:, WIDTH:].isnan().all()


@pytest.mark.parametrize("ranges", [Ranges(1), Ranges(2), Ranges(8, 32), Ranges(16, 128, 8, 2)], ids=str)
def test_decode_in_any_number_of_ranges(ranges: Ranges) -> None:
    layout = layout_of(DECODES["many"])
    pool, q = filled(layout, torch.bfloat16), queries(layout, torch.bfloat16)
    expected = reference.paged_attention(q.double(), pool, layout)
    # again and again: the counters of ended programs are left as they were found
    for _ in range(20):
        assert error(decode(q, pool, layout, ranges=ranges), expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("fours", [1, 16])
def test_a_captured_decode_follows_the_lengths(fours: int) -> None:
    whole = layout_of([(2048, 1, 0)] * 4 * fours)
    pool, q = filled(whole, torch.bfloat16), queries(whole, torch.bfloat16)
    layout = replace(whole, context_lens_B=whole.context_lens_B.clone())
    paged_attention(q, pool, layout)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = paged_attention(q, pool, layout)
    for contexts in ([2048] * 4, [1, 0, 65, 900], [0, 0, 0, 0], [730, 1024, 16, 17]):
        layout.context_lens_B.copy_(torch.tensor(contexts * fours))
        q.normal_()
        graph.replay()
        expected = reference.paged_attention(q.double(), pool, layout)
        assert (found[layout.context_lens_B == 0] == 0).all()
        if any(contexts):
            assert error(found, expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("rows", PREFILLS.values(), ids=PREFILLS.keys())
def test_prefill(rows: Rows, dtype: torch.dtype) -> None:
    layout = layout_of(rows)
    pool, q = filled(layout, dtype), queries(layout, dtype)
    out = torch.full((len(q), WIDTH + 8), torch.nan, dtype=dtype, device="cuda")
    found = paged_attention(q, pool, layout, out_TM=out)
    assert error(found, reference.paged_attention(q.double(), pool, layout)) < BOUND[dtype]
    assert out[:, WIDTH:].isnan().all()


def test_a_captured_prefill_follows_the_layout() -> None:
    int32 = {"dtype": torch.int32, "device": "cuda"}
    starts, lengths, table = torch.zeros(10, **int32), torch.zeros(2, 9, **int32), torch.zeros(9, 128, **int32)
    places = PagedLayout(starts, lengths[0], table, lengths[1], (), (), (), PAGE)
    pool = torch.zeros(2, 9 * 48, PAGE, HEADS, HEAD_DIM, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(1024, HEADS, HEAD_DIM, device="cuda").bfloat16()
    paged_attention(q, pool, places)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = paged_attention(q, pool, places)
    batches: list[Rows] = [
        [(750, 750, PREFIX)],
        [(750, 20, PREFIX)] * 9,
        [(65, 1, 0), (300, 300, 0), (731, 1, PREFIX), (700, 654, 0), (64, 64, 64)],
        [(1, 1, 0), (2, 2, 0)],
    ]
    for rows in batches:
        layout, count = layout_of(rows), sum(row[1] for row in rows)
        written = filled(layout, torch.bfloat16)
        pool[:, : written.shape[1]] = written
        starts.fill_(count)
        starts[: len(rows)] = layout.cu_seqlens_B1[:-1]
        lengths[0, : len(rows)] = layout.context_lens_B
        lengths[1, : len(rows)] = layout.prefix_lens_B
        table[: len(rows), : layout.page_table_BP.shape[1]] = layout.page_table_BP
        q.normal_()
        graph.replay()
        expected = reference.paged_attention(q[:count].double(), written, layout)
        assert error(found[:count], expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("page", [8, 32, 64])
def test_prefill_over_pages_of_other_sizes(page: int) -> None:
    layout = layout_of(PREFILLS["of every kind"], page)
    pool, q = filled(layout, torch.bfloat16), queries(layout, torch.bfloat16)
    expected = reference.paged_attention(q.double(), pool, layout)
    assert error(paged_attention(q, pool, layout), expected) < BOUND[torch.bfloat16]


def test_a_prefill_is_identical_whatever_runs_beside_it() -> None:
    layout = layout_of([(750, 750, PREFIX), (750, 750, PREFIX)])
    pool, q = filled(layout, torch.bfloat16), queries(layout, torch.bfloat16)
    expected = paged_attention(q, pool, layout)[:750].clone()
    for other in (100 * torch.randn_like(q[750:]), torch.full_like(q[750:], torch.nan)):
        q[750:] = other
        assert torch.equal(paged_attention(q, pool, layout)[:750], expected)


@pytest.mark.parametrize("rows", [DECODES["many"], PREFILLS["of every kind"]], ids=["decode", "prefill"])
def test_a_float8_pool(rows: Rows) -> None:
    layout = layout_of(rows)
    pool, q = filled(layout, torch.bfloat16).to(torch.float8_e4m3fn), queries(layout, torch.bfloat16)
    expected = reference.paged_attention(q.double(), pool, layout)
    assert error(paged_attention(q, pool, layout), expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("pool_dtype", [None, torch.float8_e4m3fn])
@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("ranges", [None, Ranges(1), Ranges(8, 32)], ids=str)
@pytest.mark.parametrize("contexts", [(900,), (1, 16, 17, 33, 0, 750, 2048, 31)], ids=len)
def test_one_launch_between_the_products(
    contexts: tuple[int, ...], ranges: Ranges | None, dtype: torch.dtype, pool_dtype: torch.dtype | None
) -> None:
    layout = layout_of([(max(context, 1), 1, 0) for context in contexts])
    positions = layout.context_lens_B.long() - 1
    pages = layout.page_table_BP.gather(1, (positions // PAGE)[:, None])[:, 0].long()
    slots = pages * PAGE + positions % PAGE
    pool = filled(layout, dtype).to(pool_dtype or dtype)
    slots[torch.tensor(contexts) == 0] = -1
    layout.context_lens_B.copy_(torch.tensor(contexts))
    table = rotation_table(2048, HEAD_DIM // 2, 10000.0, torch.device("cuda"))
    made = torch.randn(len(contexts), 3 * WIDTH + MLP, device="cuda").to(dtype)
    pools = [pool.clone() for _ in range(2)]
    outs = [torch.full((len(contexts), WIDTH + MLP), torch.nan, dtype=dtype, device="cuda") for _ in range(2)]
    places = Places(positions.clamp(min=0), table, slots)
    apart.rotate_attend(made, places, pools[0], layout, out_BM=outs[0])
    for _ in range(5):
        together.rotate_attend(made, places, pools[1], layout, out_BM=outs[1], ranges=ranges)
        assert error(outs[1], outs[0]) < BOUND[dtype]
        assert error(pools[1].float().nan_to_num(0), pools[0].float().nan_to_num(0)) < 1e-3


@pytest.mark.parametrize("count", [1, 64, 8192])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rotate_write(count: int, dtype: torch.dtype) -> None:
    pages = count // PAGE + 2
    slots = torch.randperm(pages * PAGE, device="cuda")[:count]
    slots[1::7] = -1
    positions = torch.arange(count, device="cuda") % 2048
    table = rotation_table(2048, HEAD_DIM // 2, 10000.0, torch.device("cuda"))
    rows = torch.randn(count, 3 * WIDTH + MLP, device="cuda").to(dtype)
    pools = [torch.full((2, pages, PAGE, HEADS, HEAD_DIM), 5.0, dtype=dtype, device="cuda") for _ in range(3)]
    outs = [torch.full((count, WIDTH + MLP), 7.0, dtype=dtype, device="cuda") for _ in range(2)]
    expected = plain.rotate_write_gelu(rows, Places(positions, table, slots), pools[0], out_TM=outs[0])
    found = rotate_write_gelu(rows, Places(positions, table, slots), pools[1], out_TM=outs[1])
    for one, other in ((found, expected), (pools[1], pools[0]), (outs[1], outs[0])):
        torch.testing.assert_close(one, other, rtol=8e-3 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    alone = rotate_write(rows[:, : 3 * WIDTH], Places(positions, table, slots), pools[2])
    assert torch.equal(alone, found) and torch.equal(pools[2], pools[1])


def test_rotate_write_to_a_float8_pool() -> None:
    rows = (200 * torch.randn(64, 3 * WIDTH, device="cuda")).bfloat16()
    table = rotation_table(2048, HEAD_DIM // 2, 10000.0, torch.device("cuda"))
    slots, positions = torch.randperm(80, device="cuda")[:64], torch.arange(64, device="cuda")
    pools = [torch.zeros(2, 5, PAGE, HEADS, HEAD_DIM, device="cuda").to(torch.float8_e4m3fn) for _ in range(2)]
    places = Places(positions, table, slots)
    plain.rotate_write(rows, places, pools[0])
    rotate_write(rows, places, pools[1])
    assert pools[1].float().abs().max() == 448
    assert error(pools[1].float(), pools[0].float()) < 1e-3
