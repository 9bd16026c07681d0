"""The kernels of low-rank corrections against their references; memory that must not be read is NaN."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.low_rank import kernel, reference
from stoop_worker.kernels.low_rank.reference import Groups, Term
from tests.support.matrices import within

COUNT = 3  # adapters


def weights(rank: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Return A or B of all adapters; number 0's is NaN."""
    drawn = torch.randn(rank * (COUNT + 1), columns) / columns**0.5
    drawn[:rank] = torch.nan
    return drawn.to(dtype)


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


def grouped(rows: int) -> Groups:
    """Return rows that have the adapters in turn, and every fourth row none."""
    return kernel.group_rows(torch.arange(1, rows + 1) % (COUNT + 1), COUNT + 1)


@pytest.mark.parametrize("numbers", [[0], [2], [3, 1, 0, 3, 1], [1] * 40, [0] * 17 + [3] * 16 + [1] * 33])
def test_every_row_is_in_one_tile_of_its_number(numbers: list[int]) -> None:
    groups = kernel.group_rows(torch.tensor(numbers), COUNT + 1)
    assert groups.tiles_G is not None and groups.rows_GT is not None
    found = [
        (row, number)
        for number, rows in zip(groups.tiles_G.tolist(), groups.rows_GT.tolist(), strict=True)
        for row in rows
        if row >= 0
    ]
    assert sorted(found) == list(enumerate(numbers))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("rows", "rank", "width", "layers"), [(1, 2, 48, 1), (5, 3, 700, 2), (6, 16, 1200, 3), (70, 20, 20, 2)]
)
def test_both_products(rows: int, rank: int, width: int, layers: int, dtype: torch.dtype) -> None:
    x, groups = within(rows, width, dtype), grouped(rows)
    a = [weights(rank, width, dtype) for _ in range(layers)]
    b = [weights(rank, out, dtype) for out in (60, 520, 32)[:layers]]
    parts = kernel.thin_values(x, a, groups, rank)
    expected = reference.thin_values(x.double(), [each.double() for each in a], groups, rank)
    own = groups.numbers_B > 0
    torch.testing.assert_close(parts.sum(dim=1)[:, own].double(), expected.sum(dim=1)[:, own], rtol=1e-4, atol=1e-4)

    starts = (4, 70)[:layers]
    out = within(rows, 600, dtype)
    precise = out.double()
    kernel.correct(out, [Term(parts[n], b[n], start) for n, start in enumerate(starts)], groups)
    terms = [Term(expected[n], b[n].double(), start) for n, start in enumerate(starts)]
    reference.correct(precise, terms, groups)
    torch.testing.assert_close(out.double(), precise, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("terms", [1, 2])
def test_terms_of_the_same_columns_are_summed(terms: int) -> None:
    numbers = torch.tensor([0, 2, 1, 2])
    groups = kernel.group_rows(numbers, COUNT + 1)
    x, a = within(4, 600, torch.float32), [weights(2, 600, torch.float32) for _ in range(terms)]
    b = [weights(2, 300, torch.float32) for _ in range(terms)]
    expected = torch.zeros(4, 300, dtype=torch.float64)
    for row, number in enumerate(numbers.tolist()):
        for one_a, one_b in zip(a, b, strict=True) if number else ():
            own = slice(2 * number, 2 * number + 2)
            expected[row] += x[row].double() @ one_a[own].double().T @ one_b[own].double()
    parts = kernel.thin_values(x, a, groups, 2)
    own_terms = [Term(parts[n], b[n]) for n in range(terms)]
    torch.testing.assert_close(kernel.correction(own_terms, groups).double(), expected, rtol=1e-5, atol=1e-5)
    exact = [Term(parts[n].double(), b[n].double()) for n in range(terms)]
    torch.testing.assert_close(reference.correction(exact, groups), expected, rtol=1e-5, atol=1e-5)
    out = torch.randn(4, 300)
    expected += out
    kernel.correct(out, own_terms, groups)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_more_than_fits_is_refused() -> None:
    x, groups = torch.randn(2, 64), grouped(2)
    with pytest.raises(ValueError, match="there are 4 layers"):
        kernel.thin_values(x, [weights(2, 64, x.dtype)] * 4, groups, 2)
    with pytest.raises(ValueError, match="there are 3 terms"):
        kernel.correct(x, [Term(torch.zeros(1, 2, 2), weights(2, 64, x.dtype))] * 3, groups)
