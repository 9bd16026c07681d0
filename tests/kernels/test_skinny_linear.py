"""The products of few rows and the sums after them, on any device."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.skinny_linear import (
    add_parts,
    add_parts_layer_norm,
    add_parts_rms_norm,
    gated_mlp,
    linear,
    rows_dtype,
    skinny_linear,
    split_linear,
)

DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_a_linear_layer(dtype: torch.dtype) -> None:
    x, weight, bias = draw(3, 24, dtype=dtype), draw(7, 24, dtype=dtype), draw(7, dtype=dtype)
    found = skinny_linear(x, weight, bias)
    assert found.dtype == dtype
    expected = (x.double() @ weight.double().T + bias.double()).to(dtype)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_are_as_exact_as_the_sum_is_to_be(dtype: torch.dtype) -> None:
    x, weight = draw(3, 24, dtype=dtype), draw(7, 24, dtype=dtype)
    parts = split_linear(x, weight)
    assert parts.dtype == torch.promote_types(dtype, torch.float32)
    expected = x.double() @ weight.double().T
    torch.testing.assert_close(parts.sum(dim=0).double(), expected, rtol=1e-5, atol=1e-5)


def test_a_block_ends_in_a_sum_and_its_norm() -> None:
    x, joined, weight, bias = draw(3, 7), draw(3, 24), draw(7, 24), draw(7)
    norm_weight, norm_bias = draw(7), draw(7)
    parts = torch.stack([split_linear(joined[:, :16], weight[:, :16])[0], joined[:, 16:] @ weight[:, 16:].T])
    expected = x + functional.linear(joined, weight, bias)
    summed, normed = add_parts_layer_norm(x, parts, bias, norm_weight, norm_bias)
    torch.testing.assert_close(summed, expected)
    torch.testing.assert_close(normed, functional.layer_norm(expected, (7,), norm_weight, norm_bias, 1e-5))
    assert torch.equal(add_parts(x, parts, bias), summed)


def test_a_pre_norm_mlp_is_a_gated_product_and_a_sum_with_the_next_norm() -> None:
    x, normed, gates, ups, down, norm = draw(3, 7), draw(3, 7), draw(24, 7), draw(24, 7), draw(7, 24), draw(7)
    inner = functional.silu(normed @ gates.T) * (normed @ ups.T)
    parts = gated_mlp(normed, torch.cat((gates, ups)), down)
    summed, following = add_parts_rms_norm(x, parts, norm, epsilon=1e-5)
    torch.testing.assert_close(summed, x + inner @ down.T)
    torch.testing.assert_close(following, functional.rms_norm(x + inner @ down.T, (7,), norm, 1e-5))


def test_the_sum_of_the_parts_is_rounded_once_before_the_addition() -> None:
    # bfloat16's numbers lie 2 apart from 256 on: 1.5 takes x to the next, and each of its three terms alone is lost
    x, bias = torch.full((1, 1), 256.0, dtype=torch.bfloat16), torch.full((1,), 0.5, dtype=torch.bfloat16)
    assert add_parts(x, torch.full((2, 1, 1), 0.5), bias).item() == 258
    # 1 + 2**-10 is rounded to 1, which is half way and goes to the even one; unrounded it would take x to the next
    assert add_parts(x, torch.tensor([0.5, 2**-10])[:, None, None], bias).item() == 256


def test_rows_may_be_stored_in_another_dtype_than_the_stream() -> None:
    x, weight, norm = draw(3, 24, dtype=torch.bfloat16), draw(7, 24, dtype=torch.bfloat16), draw(7).bfloat16()
    assert rows_dtype(x, weight) is torch.bfloat16  # this is the CPU
    made = linear(x, weight, dtype=torch.float16)
    assert made.dtype is torch.float16
    assert torch.equal(made, linear(x, weight).half())
    stream = draw(3, 7, dtype=torch.bfloat16)
    summed, normed = add_parts_rms_norm(stream, split_linear(x, weight), norm, epsilon=1e-5, dtype=torch.float16)
    assert (summed.dtype, normed.dtype) == (torch.bfloat16, torch.float16)
    exact = functional.rms_norm(summed.double(), (7,), norm.double(), 1e-5)
    torch.testing.assert_close(normed.double(), exact, rtol=1e-3, atol=1e-4)
