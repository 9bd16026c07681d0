import pytest
import torch

from stoop_worker.kernels.layer_norm import layer_norm


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_mean_and_variance_are_taken_away(dtype: torch.dtype, close: float) -> None:
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64).to(dtype) for shape in ((2, 3, 8), (8,), (8,)))
    exact = x.double()
    centred = exact - exact.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double() + bias.double()
    found = layer_norm(x, weight, bias)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)


def test_a_constant_row_gives_the_bias() -> None:
    bias = torch.arange(4.0)
    assert torch.equal(layer_norm(torch.full((1, 4), 3.0), torch.ones(4), bias), bias[None])
