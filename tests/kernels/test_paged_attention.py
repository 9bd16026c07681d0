"""Paged attention against attention written out row by row, on layouts of every kind."""

from dataclasses import dataclass, fields, replace
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from stoop_worker.kernels.paged_attention import PagedLayout, in_place, paged_attention, prefix_mask, write_kv

HEADS, HEAD_DIM = 2, 8
NO_PAGE = 2**30  # reading through it fails
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Sequence:
    context: int
    rows: int
    prefix: int


@st.composite
def sequences(draw: st.DrawFn, *, decode: bool = False) -> Sequence:
    context = draw(st.integers(1, 40))
    rows = 1 if decode else draw(st.integers(1, context))
    return Sequence(context, rows, draw(st.one_of(st.just(0), st.integers(0, context))))


class Case:
    """Random queries, keys and values, and the same written to a pool whose other slots are NaN.

    `group` query heads share each of the HEADS key heads.
    """

    def __init__(self, batch: list[Sequence], page_size: int, dtype: torch.dtype, seed: int, *, group: int = 1) -> None:
        random = torch.Generator().manual_seed(seed)
        self.batch = batch
        used = [-(-sequence.context // page_size) for sequence in batch]
        pages = sum(used) + 2
        order = torch.randperm(pages, generator=random).tolist()
        table = torch.full((len(batch), max(used) + 1), NO_PAGE, dtype=torch.int32)
        self.pool = torch.full((2, pages, page_size, HEADS, HEAD_DIM), torch.nan, dtype=dtype)
        self.keys_values = []
        for row, sequence in enumerate(batch):
            own = torch.tensor([order.pop() for _ in range(used[row])])
            table[row, : used[row]] = own
            position = torch.arange(sequence.context)
            kv = torch.randn(2, sequence.context, HEADS, HEAD_DIM, generator=random, dtype=torch.float64).to(dtype)
            write_kv(kv[0], kv[1], self.pool, own[position // page_size] * page_size + position % page_size)
            self.keys_values.append(kv)
        rows = [sequence.rows for sequence in batch]
        self.queries = torch.randn(sum(rows), group * HEADS, HEAD_DIM, generator=random, dtype=torch.float64).to(dtype)
        self.layout = PagedLayout(
            cu_seqlens_B1=torch.tensor([0, *rows]).cumsum(0).int(),
            context_lens_B=torch.tensor([sequence.context for sequence in batch], dtype=torch.int32),
            page_table_BP=table,
            prefix_lens_B=torch.tensor([sequence.prefix for sequence in batch], dtype=torch.int32),
            cu_seqlens=(0, *accumulate(rows)),
            context_lens=tuple(sequence.context for sequence in batch),
            prefix_lens=tuple(sequence.prefix for sequence in batch),
            page_size=page_size,
        )

    def expected(self, scale: float = HEAD_DIM**-0.5) -> Tensor:
        group = self.queries.shape[1] // HEADS
        outputs, start = [], 0
        for sequence, kv in zip(self.batch, self.keys_values, strict=True):
            for row in range(sequence.rows):
                position = sequence.context - sequence.rows + row
                seen = max(position + 1, sequence.prefix if position < sequence.prefix else 0)
                keys, values = kv[:, :seen].double().repeat_interleave(group, dim=2)
                scores = torch.einsum("hd,shd->hs", self.queries[start + row].double(), keys) * scale
                outputs.append(torch.einsum("hs,shd->hd", scores.softmax(-1), values))
            start += sequence.rows
        return torch.stack(outputs)


def check(case: Case) -> None:
    found = paged_attention(case.queries, case.pool, case.layout)
    tolerance = TOLERANCE[case.pool.dtype]
    assert found.dtype == case.pool.dtype
    torch.testing.assert_close(found.double(), case.expected(), rtol=tolerance, atol=tolerance)


@settings(max_examples=60)
@given(st.lists(sequences(), min_size=1, max_size=4), st.sampled_from([1, 3, 16]), st.integers(0, 2**20))
def test_any_mix_of_prefills_and_decodes(batch: list[Sequence], page_size: int, seed: int) -> None:
    check(Case(batch, page_size, torch.float64, seed))


@settings(max_examples=60)
@given(st.lists(sequences(decode=True), min_size=1, max_size=6), st.sampled_from([1, 3, 16]), st.integers(0, 2**20))
def test_any_decode(batch: list[Sequence], page_size: int, seed: int) -> None:
    check(Case(batch, page_size, torch.float64, seed))


@settings(max_examples=60)
@given(
    st.lists(sequences(decode=True), min_size=1, max_size=6),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([1, 2]),
    st.integers(0, 2**20),
)
def test_any_decode_that_reads_pages_in_place(batch: list[Sequence], page_size: int, group: int, seed: int) -> None:
    case = Case(batch, page_size, torch.float64, seed, group=group)
    found = in_place.decode(case.queries, case.pool, case.layout, scale=HEAD_DIM**-0.5)
    torch.testing.assert_close(found, case.expected(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_decode_of_long_contexts(dtype: torch.dtype) -> None:
    case = Case([Sequence(5000, 1, 0), Sequence(1, 1, 0), Sequence(4097, 1, 0)], 16, dtype, seed=4)
    check(case)
    contexts = torch.tensor([5000, 0, 4097], dtype=torch.int32)
    found = paged_attention(case.queries, case.pool, replace(case.layout, context_lens_B=contexts))
    assert torch.equal(found[1], torch.zeros_like(found[1]))


def test_long_contexts_in_neighbouring_pages_are_not_copied() -> None:
    case = Case([Sequence(5000, 1, 0)], 16, torch.float32, seed=4)
    pages = case.layout.page_table_BP[0, :-1].long()
    pool = torch.cat((case.pool[:, pages], case.pool[:, :2]), dim=1)
    table = torch.cat((torch.arange(len(pages)), torch.tensor([NO_PAGE]))).int()
    layout = replace(case.layout, page_table_BP=table[None])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        found = paged_attention(case.queries, pool, layout)
    torch.testing.assert_close(found.double(), case.expected(), rtol=1e-5, atol=1e-5)
    allocated = sum(max(0, event.cpu_memory_usage) for event in profiler.events())
    assert allocated < pool.nbytes / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [[Sequence(37, 37, 30), Sequence(9, 2, 0)], [Sequence(37, 1, 30), Sequence(9, 1, 0)]])
def test_other_dtypes(batch: list[Sequence], dtype: torch.dtype) -> None:
    check(Case(batch, 4, dtype, seed=1))


def test_a_padding_row_gives_zero_and_disturbs_no_other() -> None:
    case = Case([Sequence(5, 1, 0), Sequence(5, 1, 0)], 4, torch.float32, seed=2)
    contexts = torch.tensor([5, 0], dtype=torch.int32)
    case.layout.page_table_BP[1] = NO_PAGE
    layout = replace(case.layout, context_lens_B=contexts)
    found = paged_attention(case.queries, case.pool, layout)
    torch.testing.assert_close(found[0], case.expected()[0].float())
    assert torch.equal(found[1], torch.zeros(HEADS, HEAD_DIM))


@pytest.mark.parametrize("batch", [[Sequence(37, 37, 30), Sequence(9, 2, 0)], [Sequence(37, 1, 30), Sequence(9, 1, 0)]])
def test_nothing_is_asked_of_the_device(batch: list[Sequence]) -> None:
    case = Case(batch, 4, torch.float64, seed=3)
    tensors = {
        field.name: value.to("meta")
        for field in fields(case.layout)
        if isinstance(value := getattr(case.layout, field.name), Tensor)
    }
    # a tensor without data cannot be read on the host
    found = paged_attention(case.queries.to("meta"), case.pool.to("meta"), replace(case.layout, **tensors))
    assert found.shape == case.queries.shape


@pytest.mark.parametrize("batch", [[Sequence(37, 37, 30), Sequence(9, 2, 0)], [Sequence(37, 1, 30), Sequence(9, 1, 0)]])
def test_a_float8_pool_gives_nearly_the_same_attention(batch: list[Sequence]) -> None:
    case = Case(batch, 4, torch.float32, seed=5)
    found = paged_attention(case.queries, case.pool.to(torch.float8_e4m3fn), case.layout)
    torch.testing.assert_close(found.double(), case.expected(), rtol=0, atol=0.2)


@pytest.mark.parametrize("rows", [1, 7])
def test_output_goes_to_the_first_columns_of_a_wider_buffer(rows: int) -> None:
    case = Case([Sequence(9, rows, 0), Sequence(8, 1, 0)], 4, torch.float32, seed=6)
    out = torch.full((rows + 1, HEADS * HEAD_DIM + 3), torch.nan)
    found = paged_attention(case.queries, case.pool, case.layout, out_TM=out)
    assert found.data_ptr() == out.data_ptr() and out[:, HEADS * HEAD_DIM :].isnan().all()
    torch.testing.assert_close(found.double(), case.expected(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", [2, 3, 8])
@pytest.mark.parametrize("batch", [[Sequence(37, 37, 30), Sequence(9, 2, 0)], [Sequence(37, 1, 30), Sequence(9, 1, 0)]])
def test_neighbouring_query_heads_share_a_key_head(batch: list[Sequence], group: int) -> None:
    check(Case(batch, 4, torch.float64, seed=7, group=group))


@pytest.mark.parametrize("batch", [[Sequence(37, 37, 30), Sequence(9, 2, 0)], [Sequence(37, 1, 30), Sequence(9, 1, 0)]])
def test_the_scale_is_the_caller_s(batch: list[Sequence]) -> None:
    case = Case(batch, 4, torch.float64, seed=8, group=2)
    found = paged_attention(case.queries, case.pool, case.layout, scale=0.7)
    torch.testing.assert_close(found, case.expected(0.7), rtol=1e-12, atol=1e-12)


def test_query_heads_that_cannot_share_key_heads_evenly_are_refused() -> None:
    case = Case([Sequence(9, 2, 0)], 4, torch.float32, seed=9)
    with pytest.raises(ValueError, match="3 query heads"):
        paged_attention(torch.randn(2, HEADS + 1, HEAD_DIM), case.pool, case.layout)


def test_writing_changes_no_other_slot() -> None:
    pool = torch.zeros(2, 3, 2, HEADS, HEAD_DIM)
    ones = torch.ones(2, HEADS, HEAD_DIM)
    write_kv(ones, 2 * ones, pool, torch.tensor([5, 0]))
    assert pool[0].sum(dim=(-1, -2)).tolist() == [[16, 0], [0, 0], [0, 16]]
    assert pool[1].sum(dim=(-1, -2)).tolist() == [[32, 0], [0, 0], [0, 32]]


def test_a_token_without_a_slot_is_not_written() -> None:
    pool = torch.zeros(2, 3, 2, HEADS, HEAD_DIM)
    ones = torch.ones(3, HEADS, HEAD_DIM)
    write_kv(ones, ones, pool, torch.tensor([-1, 2, -1]))
    assert pool[0].sum(dim=(-1, -2)).tolist() == [[0, 0], [16, 0], [0, 0]]


def test_the_mask_s_rule() -> None:
    mask = prefix_mask(q_len=3, context_len=4, prefix_len=3, device=torch.device("cpu"))
    assert mask.int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    causal = prefix_mask(q_len=3, context_len=3, prefix_len=0, device=torch.device("cpu"))
    assert causal.int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
