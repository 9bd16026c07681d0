"""The kernels of low-rank corrections against their references; what must not be read is NaN."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.low_rank import kernel, reference
from stoop_worker.kernels.low_rank.reference import Term
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("rows", "rank", "width", "layers"), [(1, 2, 48, 1), (5, 3, 700, 2), (6, 16, 1200, 3)])
def test_both_products(rows: int, rank: int, width: int, layers: int, dtype: torch.dtype) -> None:
    x, numbers = within(rows, width, dtype), torch.arange(1, rows + 1) % (COUNT + 1)
    a = [weights(rank, width, dtype) for _ in range(layers)]
    b = [weights(rank, out, dtype) for out in (60, 520, 32)[:layers]]
    parts = kernel.thin_values(x, a, numbers, rank)
    expected = reference.thin_values(x.double(), [each.double() for each in a], numbers, rank)
    own = numbers > 0
    torch.testing.assert_close(parts.sum(dim=1)[:, own].double(), expected.sum(dim=1)[:, own], rtol=1e-4, atol=1e-4)

    starts = (4, 70)[:layers]
    out = within(rows, 600, dtype)
    precise = out.double()
    kernel.correct(out, [Term(parts[n], b[n], start) for n, start in enumerate(starts)], numbers)
    terms = [Term(expected[n], b[n].double(), start) for n, start in enumerate(starts)]
    reference.correct(precise, terms, numbers)
    torch.testing.assert_close(out.double(), precise, rtol=2e-3, atol=2e-3)


def test_two_terms_of_the_same_columns_are_summed() -> None:
    numbers, dtype = torch.tensor([0, 2, 1]), torch.float32
    x, a = within(3, 600, dtype), [weights(2, 600, dtype) for _ in range(2)]
    b, out = [weights(2, 40, dtype) for _ in range(2)], torch.randn(3, 40)
    expected = out.double() + 0
    for row, number in enumerate(numbers.tolist()):
        for one_a, one_b in zip(a, b, strict=True) if number else ():
            own = slice(2 * number, 2 * number + 2)
            expected[row] += x[row].double() @ one_a[own].double().T @ one_b[own].double()
    parts = kernel.thin_values(x, a, numbers, 2)
    kernel.correct(out, [Term(parts[n], b[n]) for n in range(2)], numbers)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_more_than_fits_is_refused() -> None:
    x, numbers = torch.randn(2, 64), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="there are 4 layers"):
        kernel.thin_values(x, [weights(2, 64, x.dtype)] * 4, numbers, 2)
    with pytest.raises(ValueError, match="there are 3 terms"):
        kernel.correct(x, [Term(torch.zeros(1, 2, 2), weights(2, 64, x.dtype))] * 3, numbers)
