"""The kernels on the cases of the reference's own tests."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout, reference
from stoop_worker.kernels.paged_attention.decode import Ranges, decode, ranges_for, takes_every_place
from stoop_worker.kernels.paged_attention.grouped_decode import decode_groups, group_ranges, suits_heads_alone
from stoop_worker.kernels.paged_attention.layout import tiles
from stoop_worker.kernels.paged_attention.prefill import Tile, prefill
from tests.kernels.test_paged_attention import HEAD_DIM, HEADS, NO_PAGE, Case, Sequence

WIDTH, BESIDE = HEADS * HEAD_DIM, 3
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3}
DECODES = [Sequence(context, 1, 0) for context in (1, 15, 16, 17, 33, 40, 3, 39)]
PREFILLS = [Sequence(40, 40, 33), Sequence(37, 20, 0), Sequence(9, 1, 0), Sequence(33, 3, 30), Sequence(17, 17, 17)]


def poisoned(case: Case) -> Tensor:
    width = case.queries[0].numel() + BESIDE
    return torch.full((len(case.queries), width), torch.nan, dtype=case.queries.dtype)


def check(found: Tensor, out: Tensor, case: Case, scale: float = HEAD_DIM**-0.5) -> None:
    tolerance = TOLERANCE[case.queries.dtype]
    torch.testing.assert_close(found.double(), case.expected(scale), rtol=tolerance, atol=tolerance)
    assert found.data_ptr() == out.data_ptr() and out[:, -BESIDE:].isnan().all()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("ranges", [Ranges(1, block=16), Ranges(4, block=16), Ranges(2, block=8)], ids=str)
def test_decode(dtype: torch.dtype, ranges: Ranges) -> None:
    case = Case(DECODES, 4, dtype, seed=1)
    out = poisoned(case)
    # twice: what is left behind by one call does not disturb the next
    for _ in range(2):
        found = decode(case.queries, case.pool, case.layout, out_TM=out, ranges=ranges)
        check(found, out, case)


def test_every_context_from_1_to_40() -> None:
    case = Case([Sequence(context, 1, 0) for context in range(1, 41)], 3, torch.float32, seed=2)
    out = poisoned(case)
    check(decode(case.queries, case.pool, case.layout, out_TM=out, ranges=Ranges(2, block=16)), out, case)


# each pair of two of the three
@pytest.mark.parametrize(
    ("ranges", "group", "dtype"),
    [
        (Ranges(1, block=16), 1, torch.float32),
        (Ranges(4, block=16), 1, torch.float16),
        (Ranges(1, block=16), 2, torch.float32),
        (Ranges(1, block=16), 3, torch.float16),
        (Ranges(1, block=16), 17, torch.float32),
        (Ranges(4, block=16), 2, torch.float16),
        (Ranges(4, block=16), 3, torch.float32),
        (Ranges(4, block=16), 17, torch.float16),
        (Ranges(2, block=8), 2, torch.float32),
        (Ranges(2, block=8), 3, torch.float16),
        (Ranges(2, block=8), 17, torch.float32),
    ],
    ids=str,
)
def test_decode_of_groups(dtype: torch.dtype, group: int, ranges: Ranges) -> None:
    case = Case(DECODES, 4, dtype, seed=7, group=group)
    out = poisoned(case)
    for _ in range(2):
        found = decode_groups(case.queries, case.pool, case.layout, scale=0.5, out_TM=out, ranges=ranges)
        check(found, out, case, 0.5)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("splits", [1, 4])
def test_a_padding_row_gives_zero_and_disturbs_no_other(splits: int, group: int) -> None:
    case = Case([Sequence(40, 1, 0), Sequence(5, 1, 0)], 4, torch.float32, seed=3, group=group)
    case.layout.page_table_BP[1] = NO_PAGE
    layout = replace(case.layout, context_lens_B=torch.tensor([40, 0], dtype=torch.int32))
    launch = decode if group == 1 else decode_groups
    found = launch(case.queries, case.pool, layout, ranges=Ranges(splits, block=8))
    torch.testing.assert_close(found[0], case.expected()[0].float())
    assert torch.equal(found[1], torch.zeros(group * HEADS, HEAD_DIM))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("page_size", [4, 3])
def test_prefill(dtype: torch.dtype, page_size: int) -> None:
    case = Case(PREFILLS, page_size, dtype, seed=4)
    out = poisoned(case)
    check(prefill(case.queries, case.pool, case.layout, out_TM=out, tile=Tile(16, block=16)), out, case)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("group", [2, 3])
def test_prefill_of_groups(dtype: torch.dtype, group: int) -> None:
    case = Case(PREFILLS, 4, dtype, seed=8, group=group)
    out = poisoned(case)
    found = prefill(case.queries, case.pool, case.layout, scale=0.5, out_TM=out, tile=Tile(16, block=16))
    check(found, out, case, 0.5)


@pytest.mark.parametrize("many", [1, 5])  # 14 and 34 sequences: a program looks at 32 together
def test_a_captured_prefill_has_idle_sequences_and_padding_rows(many: int) -> None:
    case = Case(PREFILLS * many, 4, torch.float32, seed=6)
    # two sequences without rows before the third, and some at the end; what else is said of them is never read
    starts = [*case.layout.cu_seqlens[:3], *case.layout.cu_seqlens[2:]]
    starts = [*starts[:3], starts[2], *starts[3:], *([starts[-1]] * 7)]
    nowhere = torch.full_like(case.layout.page_table_BP[0], NO_PAGE)
    order = [0, 1, -1, -1, *range(2, len(case.batch)), *([-1] * 7)]
    table = torch.stack([case.layout.page_table_BP[row] if row >= 0 else nowhere for row in order])
    numbers = [[s.context, s.prefix] for s in case.batch]
    contexts, prefixes = torch.tensor([numbers[row] if row >= 0 else [-5, 2**20] for row in order]).int().T
    layout = PagedLayout(torch.tensor(starts).int(), contexts.contiguous(), table, prefixes.contiguous(), (), (), (), 4)
    rows = len(case.queries)
    queries = torch.cat((case.queries, torch.full((29, HEADS, HEAD_DIM), torch.nan)))
    out = torch.full((rows + 29, WIDTH + BESIDE), torch.nan)
    found = prefill(queries, case.pool, layout, out_TM=out, tile=Tile(16, block=16))
    check(found[:rows], out[:rows], case)
    assert out[rows:].isnan().all()


@pytest.mark.parametrize(("counts", "least"), [([1, 1, 1], 3), ([64, 65], 3), ([2], 1), ([130, 1, 1], 5), ([63], 1)])
def test_a_launch_has_room_for_all_tiles(counts: list[int], least: int) -> None:
    assert least <= tiles(sum(counts), len(counts), 64) <= least + len(counts)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("batch", [DECODES[:3], PREFILLS[:2]])
def test_a_float8_pool(batch: list[Sequence], group: int) -> None:
    case = Case(batch, 4, torch.float32, seed=5, group=group)
    pool = case.pool.to(torch.float8_e4m3fn)
    expected = reference.paged_attention(case.queries, pool, case.layout)
    launch = prefill if batch[0].rows > 1 else decode if group == 1 else decode_groups
    torch.testing.assert_close(launch(case.queries, pool, case.layout), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("batch", "positions", "splits"),
    [(1, 912, 16), (1, 2048, 16), (8, 2048, 4), (64, 912, 1), (128, 912, 1), (1, 30, 1)],
)
def test_small_batches_are_split(batch: int, positions: int, splits: int) -> None:
    assert ranges_for(batch, 32, positions).splits == splits


@pytest.mark.parametrize(
    ("batch", "positions", "head_dim", "splits"),
    [
        (1, 912, 64, 16),
        (1, 32768, 128, 32),
        (8, 2048, 128, 16),
        (64, 912, 64, 2),
        (256, 912, 128, 1),
        (1, 30, 64, 1),
    ],
)
def test_small_batches_of_groups_are_split(batch: int, positions: int, head_dim: int, splits: int) -> None:
    queries = torch.empty(batch, 32, head_dim, dtype=torch.bfloat16)
    pool = torch.empty(2, 1, 16, 8, head_dim, dtype=torch.bfloat16)
    assert group_ranges(queries, pool, positions).splits == splits


@pytest.mark.parametrize(
    ("batch", "heads", "key_heads", "head_dim", "suits"),
    [(48, 32, 32, 64, True), (47, 32, 32, 64, False), (48, 32, 32, 128, False), (192, 32, 8, 64, False)],
)
def test_many_heads_alone_have_programs_of_one_warp(
    batch: int, heads: int, key_heads: int, head_dim: int, *, suits: bool
) -> None:
    queries = torch.empty(batch, heads, head_dim, dtype=torch.bfloat16)
    pool = torch.empty(2, 1, 16, key_heads, head_dim, dtype=torch.bfloat16)
    assert suits_heads_alone(queries, pool) is suits
    assert not suits_heads_alone(queries, pool.to(torch.float8_e4m3fn))
    assert not suits_heads_alone(queries.float(), pool.float())
    assert (group_ranges(queries, pool, 912) == Ranges(1, 32, 1, 3)) is suits


@pytest.mark.parametrize(
    ("batch", "taken"), [(16, True), (33, False), (48, False), (64, True), (128, True), (256, False)]
)
def test_some_grids_take_every_place(batch: int, *, taken: bool) -> None:
    assert takes_every_place(batch, 8) is taken
    assert (batch * 8 * ranges_for(batch, 8, 4096).splits == 1024) is taken
