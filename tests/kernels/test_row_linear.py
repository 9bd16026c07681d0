"""Products with a norm before and a sum or a gate after them, against plain torch."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.row_linear import RowNorm, row_linear


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 3])
def test_it_is_the_first_half_of_an_mlp(rows: int) -> None:
    x, norm, gates, ups = draw(rows, 24), draw(24), draw(7, 24), draw(7, 24)
    found = row_linear(x, torch.cat((gates, ups)), norm=RowNorm(norm, 1e-5), gated=True)
    normed = functional.rms_norm(x, (24,), norm, 1e-5)
    torch.testing.assert_close(found, functional.silu(normed @ gates.T) * (normed @ ups.T))


@pytest.mark.parametrize("rows", [1, 3])
def test_it_is_the_second_half_with_the_residual(rows: int) -> None:
    inner, down, x = draw(rows, 24), draw(7, 24), draw(rows, 7)
    torch.testing.assert_close(row_linear(inner, down, added_to_BN=x), x + inner @ down.T)


def test_it_is_rounded_once() -> None:
    # bfloat16's numbers lie 2 apart from 256 on: 1.25 and 0.25 are each lost if they are rounded before they are added
    x = torch.ones(1, 1, dtype=torch.bfloat16)
    weight, added_to = torch.full((1, 1), 1 + 2**-7, dtype=torch.bfloat16), torch.full((1, 1), 256.0).bfloat16()
    assert row_linear(x, weight, added_to_BN=added_to).item() == 258
    assert row_linear(x, weight, added_to_BN=added_to).dtype == torch.bfloat16
