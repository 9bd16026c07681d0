"""The kernel between a decode's products against rotation, writing and attention one after another."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention.decode import Ranges
from stoop_worker.kernels.paged_attention.grouped_decode import decode_groups
from stoop_worker.kernels.rotate_attend import groups, kernel, reference
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotate_write, rotation_table
from tests.kernels.test_paged_attention import HEAD_DIM, HEADS, NO_PAGE, Case, Sequence

WIDTH, INNER = HEADS * HEAD_DIM, 1030
CONTEXTS = (1, 16, 17, 33, 40)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3}
TABLE = rotation_table(64, HEAD_DIM // 2, 10000.0, torch.device("cpu"))


def places_of(case: Case) -> Places:
    """Return the positions and the slots of the last positions, and the table."""
    positions = case.layout.context_lens_B.long() - 1
    size = case.layout.page_size
    pages = case.layout.page_table_BP.gather(1, (positions // size)[:, None])[:, 0].long()
    return Places(positions, TABLE, pages * size + positions % size)


def made_of(rows: int, dtype: torch.dtype) -> Tensor:
    """Return rows as the first product makes them, in the midst of NaNs."""
    whole = torch.full((rows, 3 * WIDTH + INNER + 7), torch.nan, dtype=dtype)
    whole[:, :-7] = torch.randn(rows, 3 * WIDTH + INNER, generator=torch.Generator().manual_seed(0))
    return whole[:, :-7]


def poisoned(rows: int, dtype: torch.dtype) -> Tensor:
    return torch.full((rows, WIDTH + INNER + 3), torch.nan, dtype=dtype)


@pytest.mark.parametrize(
    ("ranges", "held", "dtype"),
    [
        (Ranges(1, block=16), 0, torch.float16),
        (Ranges(4, block=16), 1, torch.float32),
        (Ranges(2, block=8), 2, torch.float16),
    ],
    ids=str,
)
def test_it_equals_the_separate_kernels(
    ranges: Ranges, held: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_HELD", held)
    case = Case([Sequence(context, 1, 0) for context in CONTEXTS], 4, dtype, seed=1)
    places, made = places_of(case), made_of(len(CONTEXTS), dtype)
    pools, outs = [case.pool.clone() for _ in range(2)], [poisoned(len(CONTEXTS), dtype) for _ in range(2)]
    slots = places.slots_T
    for pool in pools:  # what is not yet stored must not be read
        pool.view(2, -1, HEADS, HEAD_DIM)[:, slots] = torch.nan
    reference.rotate_attend(made, places, pools[0], case.layout, out_BM=outs[0][:, :-3])
    # twice: what is left behind by one call does not disturb the next
    for _ in range(2):
        kernel.rotate_attend(made, places, pools[1], case.layout, out_BM=outs[1][:, :-3], ranges=ranges)
        for one, other in ((outs[1], outs[0]), (pools[1], pools[0])):
            torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True)


@pytest.mark.parametrize("splits", [1, 4])
def test_a_padding_row_gives_zero_and_stores_nothing(splits: int) -> None:
    case = Case([Sequence(40, 1, 0), Sequence(5, 1, 0)], 4, torch.float32, seed=3)
    places, made = places_of(case), made_of(2, torch.float32)
    alone, pool, outs = case.pool.clone(), case.pool.clone(), [poisoned(2, torch.float32) for _ in range(2)]
    reference.rotate_attend(made, places, alone, case.layout, out_BM=outs[0][:, :-3])
    case.layout.page_table_BP[1] = NO_PAGE
    layout = replace(case.layout, context_lens_B=torch.tensor([40, 0], dtype=torch.int32))
    places.positions[1], places.slots_T[1] = 0, -1
    ranges = Ranges(splits, block=8)
    kernel.rotate_attend(made, places, pool, layout, out_BM=outs[1][:, :-3], ranges=ranges)
    torch.testing.assert_close(outs[1][0], outs[0][0], equal_nan=True)
    assert torch.equal(outs[1][1, :WIDTH], torch.zeros(WIDTH))
    changed = (pool.nan_to_num(7) != case.pool.nan_to_num(7)).flatten(3).any(dim=3).nonzero()[:, 1:].unique(dim=0)
    assert changed.tolist() == [list(divmod(int(places.slots_T[0]), 4))]


def test_a_float8_pool_is_read_as_it_was_stored() -> None:
    case = Case([Sequence(context, 1, 0) for context in CONTEXTS], 4, torch.float32, seed=5)
    # the interpreter rounds to float8 otherwise than torch: values that need no rounding, at position 0
    made = made_of(len(CONTEXTS), torch.float32)
    made[:, : 3 * WIDTH] = made[:, : 3 * WIDTH].to(torch.float8_e4m3fn).float()
    places = replace(places_of(case), positions=torch.zeros(len(CONTEXTS), dtype=torch.int64))
    pools = [case.pool.to(torch.float8_e4m3fn) for _ in range(2)]
    outs = [poisoned(len(CONTEXTS), torch.float32) for _ in range(2)]
    reference.rotate_attend(made, places, pools[0], case.layout, out_BM=outs[0][:, :-3])
    kernel.rotate_attend(made, places, pools[1], case.layout, out_BM=outs[1][:, :-3])
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-4, atol=1e-4, equal_nan=True)
    assert torch.equal(pools[1].float().nan_to_num(0), pools[0].float().nan_to_num(0))


def grouped_places(case: Case, *, axes: int, rotary: int) -> Places:
    placed = places_of(case)
    positions, slots = placed.positions, placed.slots_T
    table = rotation_table(64, rotary, 10000.0, torch.device("cpu"))
    if axes == 1:
        return Places(positions, table, slots)
    several = torch.stack((positions, positions // 2, positions // 3), dim=1)
    return Places(several, table, slots, (torch.arange(rotary // 2) % 3).int())


def grouped_rows(rows: int, group: int, dtype: torch.dtype) -> Tensor:
    """Return rows of q, k and v in the midst of NaNs."""
    width = (group + 2) * WIDTH
    whole = torch.full((rows, width + 5), torch.nan, dtype=dtype)
    whole[:, :width] = torch.randn(rows, width)
    return whole[:, :width]


@pytest.mark.parametrize(
    ("ranges", "held", "group", "axes", "rotary", "normed", "dtype"),
    [
        (Ranges(1, block=16), 0, 4, 1, HEAD_DIM, False, torch.float16),
        (Ranges(4, block=16), 1, 3, 1, HEAD_DIM, True, torch.float32),
        (Ranges(4, block=16), 1, 2, 3, HEAD_DIM, True, torch.float16),
        (Ranges(2, block=8), 2, 17, 1, HEAD_DIM // 2, True, torch.float32),
        (Ranges(4, block=8), 1, 1, 3, HEAD_DIM // 2, False, torch.float32),
    ],
    ids=str,
)
def test_grouped_heads_equal_the_separate_kernels(
    ranges: Ranges,
    held: int,
    group: int,
    axes: int,
    rotary: int,
    normed: bool,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "_HELD", held)
    case = Case([Sequence(context, 1, 0) for context in CONTEXTS], 4, dtype, seed=1)
    places, qkv = grouped_places(case, axes=axes, rotary=rotary), grouped_rows(len(CONTEXTS), group, dtype)
    norms = HeadNorms(torch.randn(HEAD_DIM).to(dtype), torch.randn(HEAD_DIM).to(dtype), 1e-6) if normed else None
    pools = [case.pool.clone() for _ in range(2)]
    for pool in pools:  # what is not yet stored must not be read
        pool.view(2, -1, HEADS, HEAD_DIM)[:, places.slots_T] = torch.nan
    expected = reference.rotate_attend_groups(qkv, places, pools[0], case.layout, norms=norms)
    # twice: what is left behind by one call does not disturb the next
    for _ in range(2):
        found = groups.rotate_attend_groups(qkv, places, pools[1], case.layout, norms=norms, ranges=ranges)
        for one, other in ((found, expected), (pools[1], pools[0])):
            torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True)


def test_the_heads_outputs_may_have_another_dtype() -> None:
    case = Case([Sequence(context, 1, 0) for context in CONTEXTS], 4, torch.float32, seed=7)
    places, qkv = grouped_places(case, axes=1, rotary=HEAD_DIM), grouped_rows(len(CONTEXTS), 2, torch.float32)
    expected = reference.rotate_attend_groups(qkv, places, case.pool.clone(), case.layout)
    found = reference.rotate_attend_groups(qkv, places, case.pool.clone(), case.layout, dtype=torch.float16)
    assert found.dtype is torch.float16
    torch.testing.assert_close(found.float(), expected, rtol=1e-3, atol=1e-3)
    q_BHD = rotate_write(qkv, places, case.pool)
    into_BC = torch.empty(expected.shape, dtype=torch.float16)
    decode_groups(q_BHD, case.pool, case.layout, out_TM=into_BC)
    torch.testing.assert_close(into_BC.float(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("splits", [1, 4])
def test_a_padding_row_of_grouped_heads_gives_zero_and_stores_nothing(splits: int) -> None:
    case = Case([Sequence(40, 1, 0), Sequence(5, 1, 0)], 4, torch.float32, seed=3)
    places, qkv = grouped_places(case, axes=1, rotary=HEAD_DIM), grouped_rows(2, 2, torch.float32)
    alone, pool = case.pool.clone(), case.pool.clone()
    expected = reference.rotate_attend_groups(qkv, places, alone, case.layout)
    case.layout.page_table_BP[1] = NO_PAGE
    layout = replace(case.layout, context_lens_B=torch.tensor([40, 0], dtype=torch.int32))
    places.positions[1], places.slots_T[1] = 0, -1
    found = groups.rotate_attend_groups(qkv, places, pool, layout, ranges=Ranges(splits, block=8))
    torch.testing.assert_close(found[0], expected[0])
    assert torch.equal(found[1], torch.zeros(2 * WIDTH))
    changed = (pool.nan_to_num(7) != case.pool.nan_to_num(7)).flatten(3).any(dim=3).nonzero()[:, 1:].unique(dim=0)
    assert changed.tolist() == [list(divmod(int(places.slots_T[0]), 4))]


def test_grouped_heads_read_a_float8_pool_as_it_was_stored() -> None:
    case = Case([Sequence(context, 1, 0) for context in CONTEXTS], 4, torch.float32, seed=5)
    # the interpreter rounds to float8 otherwise than torch: values that need no rounding, at position 0
    qkv = grouped_rows(len(CONTEXTS), 2, torch.float32).to(torch.float8_e4m3fn).float()
    places = replace(grouped_places(case, axes=1, rotary=HEAD_DIM), positions=torch.zeros(len(CONTEXTS)).long())
    pools = [case.pool.to(torch.float8_e4m3fn) for _ in range(2)]
    expected = reference.rotate_attend_groups(qkv, places, pools[0], case.layout)
    found = groups.rotate_attend_groups(qkv, places, pools[1], case.layout)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(pools[1].float().nan_to_num(0), pools[0].float().nan_to_num(0))


def test_no_rows_launch_no_kernel() -> None:
    case = Case([Sequence(5, 1, 0)], 4, torch.float32, seed=3)
    places = grouped_places(case, axes=1, rotary=HEAD_DIM)
    none = replace(places, positions=places.positions[:0], slots_T=places.slots_T[:0])
    assert groups.rotate_attend_groups(torch.zeros(0, 4 * WIDTH), none, case.pool, case.layout).shape == (0, 2 * WIDTH)
