"""Attention and rotation with fewer key heads than query heads, as compiled kernels, at the sizes of real decoders."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, reference
from stoop_worker.kernels.paged_attention.decode import Ranges
from stoop_worker.kernels.paged_attention.grouped_decode import decode_groups
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotate_write, rotation_table
from stoop_worker.kernels.rotate_write import reference as plain
from tests.gpu.test_attention_kernels import BOUND, DECODES, PAGE, PREFILLS, Rows, error, filled, layout_of, queries

SIZES = [(32, 8, 64), (24, 8, 128), (32, 8, 128), (12, 12, 128), (8, 1, 64)]
"""Query heads, key heads, head dim."""


def case(
    rows: Rows, sizes: tuple[int, int, int], dtype: torch.dtype, page: int = PAGE
) -> tuple[Tensor, Tensor, PagedLayout]:
    """Return queries, a pool and their layout."""
    heads, key_heads, head_dim = sizes
    layout = layout_of(rows, page)
    return queries(layout, dtype, heads, head_dim), filled(layout, dtype, key_heads, head_dim), layout


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("rows", [*DECODES.values(), *PREFILLS.values()], ids=[*DECODES, *PREFILLS])
def test_it_agrees_with_the_reference(rows: Rows, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    q, pool, layout = case(rows, sizes, dtype)
    width = q[0].numel()
    out = torch.full((len(q), width + 8), torch.nan, dtype=dtype, device="cuda")
    found = paged_attention(q, pool, layout, scale=0.11, out_TM=out)
    expected = reference.paged_attention(q.double(), pool, layout, scale=0.11)
    assert error(found, expected) < BOUND[dtype]
    assert out[:, width:].isnan().all()


@pytest.mark.parametrize(
    "ranges", [Ranges(1, 32, 4), Ranges(2, 64, 4), Ranges(8, 16, 2), Ranges(32, 64, 8, 2)], ids=str
)
def test_decode_in_any_number_of_ranges(ranges: Ranges) -> None:
    q, pool, layout = case(DECODES["many"], SIZES[0], torch.bfloat16)
    expected = reference.paged_attention(q.double(), pool, layout)
    # again and again: the counters of ended programs are left as they were found
    for _ in range(20):
        assert error(decode_groups(q, pool, layout, ranges=ranges), expected) < BOUND[torch.bfloat16]


def test_a_captured_decode_follows_the_lengths() -> None:
    q, pool, whole = case([(2048, 1, 0)] * 4, SIZES[2], torch.bfloat16)
    layout = replace(whole, context_lens_B=whole.context_lens_B.clone())
    paged_attention(q, pool, layout)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = paged_attention(q, pool, layout)
    for contexts in ([2048] * 4, [1, 0, 65, 900], [0, 0, 0, 0], [730, 1024, 16, 17]):
        layout.context_lens_B.copy_(torch.tensor(contexts))
        q.normal_()
        graph.replay()
        expected = reference.paged_attention(q.double(), pool, layout)
        assert (found[layout.context_lens_B == 0] == 0).all()
        if any(contexts):
            assert error(found, expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("page", [8, 32, 64])
def test_prefill_over_pages_of_other_sizes(page: int) -> None:
    q, pool, layout = case(PREFILLS["of every kind"], SIZES[0], torch.bfloat16, page)
    expected = reference.paged_attention(q.double(), pool, layout)
    assert error(paged_attention(q, pool, layout), expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("sizes", SIZES[:2], ids=str)
def test_a_prefill_is_identical_whatever_runs_beside_it(sizes: tuple[int, int, int]) -> None:
    q, pool, layout = case([(750, 750, 0), (750, 750, 0)], sizes, torch.bfloat16)
    expected = paged_attention(q, pool, layout)[:750].clone()
    for other in (100 * torch.randn_like(q[750:]), torch.full_like(q[750:], torch.nan)):
        q[750:] = other
        assert torch.equal(paged_attention(q, pool, layout)[:750], expected)


@pytest.mark.parametrize("sizes", SIZES[:3], ids=str)
@pytest.mark.parametrize("rows", [DECODES["many"], PREFILLS["of every kind"]], ids=["decode", "prefill"])
def test_a_float8_pool(rows: Rows, sizes: tuple[int, int, int]) -> None:
    q, pool, layout = case(rows, sizes, torch.bfloat16)
    pool = pool.to(torch.float8_e4m3fn)
    expected = reference.paged_attention(q.double(), pool, layout)
    assert error(paged_attention(q, pool, layout), expected) < BOUND[torch.bfloat16]


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("count", [1, 64, 4096])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rotate_write(sizes: tuple[int, int, int], count: int, normed: bool, axes: int, dtype: torch.dtype) -> None:
    heads, key_heads, head_dim = sizes
    pages = count // PAGE + 2
    slots = torch.randperm(pages * PAGE, device="cuda")[:count]
    slots[1::7] = -1
    table = rotation_table(2048, head_dim, 500000.0, torch.device("cuda"))
    positions = torch.arange(count, device="cuda") % 2048
    places = Places(positions, table, slots)
    if axes == 3:
        axis = (torch.arange(head_dim // 2, device="cuda") % 3).int()
        places = Places(torch.stack((positions, positions // 2, positions // 3), dim=1), table, slots, axis)
    weights = torch.randn(2, head_dim, device="cuda").to(dtype)
    norms = HeadNorms(weights[0], weights[1], 1e-6) if normed else None
    rows = torch.randn(count, (heads + 2 * key_heads) * head_dim + 8, device="cuda").to(dtype)[:, :-8]
    pools = [torch.full((2, pages, PAGE, key_heads, head_dim), 5.0, dtype=dtype, device="cuda") for _ in range(2)]
    expected = plain.rotate_write(rows, places, pools[0], norms=norms)
    found = rotate_write(rows, places, pools[1], norms=norms)
    for one, other in ((found, expected), (pools[1], pools[0])):
        assert error(one, other) < (2e-3 if dtype == torch.bfloat16 else 1e-5)
