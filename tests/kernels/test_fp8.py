"""fp8: stored values are near the given ones, and products are near the exact ones."""

import pytest
import torch

from stoop_worker.kernels.fp8 import Fp8Linear, gelu_fp8, quantise_rows, quantise_weight, scaled_linear


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[-1]))


def test_the_largest_of_a_row_becomes_the_largest_of_fp8() -> None:
    x = torch.tensor([[0.5, -2.0, 1.0], [0.0, 3.0, -0.375]])
    values, scale = quantise_rows(x)
    assert values.float().abs().amax(dim=-1).tolist() == [448, 448]
    torch.testing.assert_close(values.float() * scale, x, rtol=2**-4, atol=0)


def test_a_row_of_zeros_stays_zero() -> None:
    values, scale = quantise_rows(torch.zeros(2, 16))
    assert (values.float() * scale == 0).all()


def test_gelu_is_applied_first() -> None:
    x = randn(3, 64)
    values, scale = gelu_fp8(x)
    expected = torch.nn.functional.gelu(x, approximate="tanh")
    torch.testing.assert_close(values.float() * scale, expected, rtol=2**-4, atol=scale.max().item() * 2**-9)


def test_each_output_channel_has_its_scale() -> None:
    weight = randn(32, 48) * torch.logspace(-3, 3, 32)[:, None]
    values, scale = quantise_weight(weight)
    assert (values.shape, scale.shape) == ((32, 48), (32,))
    torch.testing.assert_close(values.float() * scale[:, None], weight, rtol=2**-4, atol=1e-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_is_near_the_exact_one(dtype: torch.dtype) -> None:
    x, weight, bias = randn(2, 5, 128), randn(64, 128), randn(64).to(dtype)
    found = scaled_linear(*quantise_rows(x), Fp8Linear.of(weight, bias))
    expected = x @ weight.T + bias.float()
    assert (found.shape, found.dtype) == ((2, 5, 64), dtype)
    assert (found.float() - expected).norm() / expected.norm() < 4e-2
