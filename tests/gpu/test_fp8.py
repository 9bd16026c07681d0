"""fp8 layers on the device, against exact arithmetic on the same inputs."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels import fp8, layer_norm
from stoop_worker.kernels.fp8 import FixedScale, Fp8Linear
from stoop_worker.kernels.layer_norm import reference as norm_reference

SHAPES = [(1152, 3456), (1152, 1152), (1152, 4304), (4304, 1152), (2048, 6144), (2048, 8192), (8192, 2048)]
HALF_STEP = 2**-4  # of three bits of mantissa


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def error(found: Tensor, expected: Tensor) -> float:
    expected = expected.float()
    return ((found.float() - expected).norm() / expected.norm()).item()


def near(rows: tuple[Tensor, Tensor], expected: Tensor) -> None:
    values, scale = rows
    assert (values.dtype, scale.dtype) == (torch.float8_e4m3fn, torch.float32)
    torch.testing.assert_close(
        values.float() * scale, expected.float(), rtol=1.2 * HALF_STEP, atol=scale.max().item() * 2**-9
    )
    assert error(values.float() * scale, expected) < 4e-2


@pytest.mark.parametrize("rows", [1, 17, 750, 20412])
@pytest.mark.parametrize(("width", "out"), SHAPES)
@pytest.mark.parametrize("fast", [True, False])
def test_a_linear_layer(rows: int, width: int, out: int, fast: bool) -> None:
    x, weight, bias = randn(rows, width), randn(out, width) / width**0.5, randn(out)
    found = fp8.scaled_linear(*fp8.quantise_rows(x), Fp8Linear.of(weight, bias), fast=fast)
    assert (found.shape, found.dtype) == ((rows, out), torch.bfloat16)
    assert error(found, functional.linear(x.float(), weight.float(), bias.float())) < 4e-2


def test_rows_and_channels_of_very_different_sizes() -> None:
    x = randn(64, 1152) * torch.logspace(-3, 3, 64, device="cuda").bfloat16()[:, None]
    weight = randn(1152, 1152) * torch.logspace(-3, 3, 1152, device="cuda").bfloat16()[:, None]
    bias = torch.zeros(1152, device="cuda", dtype=torch.bfloat16)
    found = fp8.scaled_linear(*fp8.quantise_rows(x), Fp8Linear.of(weight, bias))
    exact = functional.linear(x.double(), weight.double())
    errors = (found.double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert errors.max() < 6e-2


@pytest.mark.parametrize("rows", [1, 3, 17, 750, 20412])
@pytest.mark.parametrize(("width", "inner"), [(1152, 4304), (2048, 8192)])
def test_an_mlp_with_one_scale_for_all_rows(rows: int, width: int, inner: int) -> None:
    x, norm = randn(rows, width), (1 + 0.1 * randn(width), randn(width))
    up, down = randn(inner, width) / width**0.5, randn(width, inner) / inner**0.5
    up_bias, down_bias = randn(inner), randn(width)
    scale = FixedScale.after_norm(up, up_bias, norm)
    first = Fp8Linear.of_one_scale(up, up_bias, rows=FixedScale.of_norm(*norm), gelu=scale)
    assert first.rows is not None
    normed = layer_norm.layer_norm_fp8(x, *norm, scale=first.rows.value)
    exact = norm_reference.layer_norm(x.float(), *(each.float() for each in norm))
    assert error(normed[0].float() * normed[1], exact) < 4e-2
    values, scales = fp8.gelu_linear_fp8(*normed, first)
    exact = functional.gelu(functional.linear(exact, up.float(), up_bias.float()), approximate="tanh")
    assert (values.shape, values.dtype) == ((rows, inner), torch.float8_e4m3fn)
    assert error(values.float() * scales, exact) < 5e-2
    found = fp8.scaled_linear(values, scales, Fp8Linear.of_one_scale(down, down_bias))
    assert error(found, functional.linear(exact, down.float(), down_bias.float())) < 5e-2


@pytest.mark.parametrize("rows", [1, 17, 20412])
@pytest.mark.parametrize("width", [1152, 2048, 4304, 8192])
def test_rows_to_fp8(rows: int, width: int) -> None:
    x = 4 * randn(rows, width)
    near(fp8.quantise_rows(x), x)
    near(fp8.gelu_fp8(x), functional.gelu(x.float(), approximate="tanh").bfloat16())


@pytest.mark.parametrize("rows", [1, 17, 20412])
@pytest.mark.parametrize(("width", "count"), [(1152, 1), (2048, 2)])
def test_norms_go_straight_to_fp8(rows: int, width: int, count: int) -> None:
    x, weight, bias = randn(rows, width), 1 + 0.1 * randn(width), randn(width)
    added = tuple(randn(rows, width) for _ in range(count))
    expected_sum, _ = norm_reference.add_layer_norm(x, added, weight, bias)
    summed, quantised = layer_norm.add_layer_norm_fp8(x, added, weight, bias)
    assert torch.equal(summed, expected_sum)
    exact = norm_reference.layer_norm(expected_sum.float(), weight.float(), bias.float())
    near(quantised, exact.bfloat16())
    near(layer_norm.layer_norm_fp8(summed, weight, bias), exact.bfloat16())


@pytest.mark.parametrize("rows", [3, 4096])
def test_the_norm_of_a_sum_comes_plain_and_in_fp8(rows: int) -> None:
    x, weight, bias = randn(rows, 1024), 1 + 0.1 * randn(1024), randn(1024)
    added = (randn(rows, 1024),)
    _, expected = layer_norm.add_layer_norm(x, added, weight, bias)
    assert torch.equal(layer_norm.norm_of_sum(x, added, weight, bias), expected)
    normed, quantised = layer_norm.norm_of_sum_fp8(x, added, weight, bias)
    # compiled with the rounding to float8, the kernel may add up a row in another order: one unit in the last place
    torch.testing.assert_close(normed, expected, rtol=2**-7, atol=1e-5)
    near(quantised, expected)


def test_a_row_of_zeros_stays_zero() -> None:
    values, scale = fp8.quantise_rows(torch.zeros(2, 1152, device="cuda", dtype=torch.bfloat16))
    assert (values.float() * scale == 0).all()
