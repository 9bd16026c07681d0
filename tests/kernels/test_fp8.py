"""fp8: stored values are near the given ones, and products are near the exact ones."""

import pytest
import torch
from torch.nn import functional

from stoop_worker.kernels import layer_norm, vision_attention
from stoop_worker.kernels.fp8 import (
    FixedScale,
    Fp8Linear,
    gelu_fp8,
    gelu_linear_fp8,
    quantise_by,
    quantise_rows,
    quantise_weight,
    scaled_linear,
)


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


def test_no_norm_exceeds_its_scale_and_the_largest_one_reaches_it() -> None:
    weight, bias = 1 + randn(64) / 8, randn(64)
    scale = FixedScale.of_norm(weight, bias)
    channel = (8 * weight.abs() + bias.abs()).argmax()
    x = torch.zeros(2, 64)
    x[0, channel], x[1, channel] = 1e4, -1e4  # all of the length in one channel
    values = layer_norm.layer_norm(x, weight, bias) / scale.value
    assert 440 < values.abs().max() <= 448


def test_no_output_after_a_norm_exceeds_its_scale() -> None:
    weight, bias, norm = randn(48, 64), randn(48), (1 + randn(64) / 8, randn(64))
    scale = FixedScale.after_norm(weight, bias, norm)
    along = weight * norm[0]  # the rows with the largest outputs
    outputs = functional.linear(layer_norm.layer_norm(1e3 * torch.cat((along, -along)), *norm), weight, bias)
    assert 300 < outputs.abs().max() / scale.value <= 448
    torch.testing.assert_close(scale.scale_11 * scale.inverse_11, torch.ones(1, 1))


@pytest.mark.parametrize("outliers", [1.0, 30.0])
def test_an_mlp_with_one_scale_for_all_rows_is_near_the_exact_one(outliers: float) -> None:
    x, up, down = randn(2, 5, 128), randn(64, 128) / 11, randn(128, 64) / 8
    up_bias, down_bias, norm = randn(64), randn(128), (1 + randn(128) / 8, randn(128) / 4)
    norm[0][::16] *= outliers
    scale = FixedScale.after_norm(up, up_bias, norm)
    first = Fp8Linear.of_one_scale(up, up_bias, rows=FixedScale.of_norm(*norm), gelu=scale)
    assert first.rows is not None
    rows = layer_norm.layer_norm_fp8(x, *norm, scale=first.rows.value)
    values, scales = gelu_linear_fp8(*rows, first)
    found = scaled_linear(values, scales, Fp8Linear.of_one_scale(down, down_bias))
    inner = functional.linear(layer_norm.layer_norm(x, *norm), up, up_bias)
    expected = functional.linear(functional.gelu(inner, approximate="tanh"), down, down_bias)
    assert (values.dtype, scales.shape, found.shape) == (torch.float8_e4m3fn, (1, 1), (2, 5, 128))
    assert (found - expected).norm() / expected.norm() < 5e-2


def test_values_beyond_a_scale_become_the_largest() -> None:
    scale = FixedScale.of(torch.tensor(224.0))
    assert quantise_by(torch.tensor([1.0, 500.0, -500.0]), scale).tolist() == [2, 448, -448]


def test_attention_in_fp8_is_near_the_exact_one() -> None:
    qkv = randn(2, 20, 3, 2, 16)
    scale = FixedScale.of(qkv[:, :, 2])
    found = vision_attention.vision_attention_fp8(qkv, scale).float() * scale.value
    expected = vision_attention.vision_attention(qkv)
    assert (found - expected).norm() / expected.norm() < 4e-2
