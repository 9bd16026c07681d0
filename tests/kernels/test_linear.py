"""Linear layers on a CPU, whichever library computes them."""

import pytest
import torch
from torch.nn import functional

from stoop_worker.kernels.linear import linear


@pytest.mark.parametrize("shape", [(1, 384), (3, 384), (500, 384), (2, 300, 384), (0, 384)])
@pytest.mark.parametrize("out", [8, 1536, 20_000])
@pytest.mark.parametrize("biased", [False, True])
def test_any_number_of_rows_and_columns(shape: tuple[int, ...], out: int, biased: bool) -> None:
    random = torch.Generator().manual_seed(1)
    x, weight = torch.randn(shape, generator=random), torch.randn(out, shape[-1], generator=random)
    bias = torch.randn(out, generator=random) if biased else None
    wanted = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    found = linear(x, weight, bias)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_rows_and_weights_with_gaps_in_memory() -> None:
    x, weight = torch.randn(384, 500).t(), torch.randn(1000, 768)[:, ::2]
    torch.testing.assert_close(linear(x, weight), x @ weight.t(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes_stay(dtype: torch.dtype) -> None:
    x, weight = torch.randn(64, 384).to(dtype), torch.randn(1536, 384).to(dtype)
    assert torch.equal(linear(x, weight), functional.linear(x, weight))


def test_gradients() -> None:
    x, weight = torch.randn(64, 384), torch.randn(1536, 384, requires_grad=True)
    linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum(dim=0).expand(1536, -1), rtol=1e-4, atol=1e-4)
