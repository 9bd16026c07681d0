"""The layer norm kernel against its reference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.layer_norm import kernel, reference

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def inputs(rows: int, width: int, dtype: torch.dtype) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, Tensor]:
    random = torch.Generator().manual_seed(width)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    return 3 * draw(rows, width) + 1, (draw(rows, width), draw(rows, width)), 1 + 0.1 * draw(width), draw(width)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [2, 72, 128, 1152, 2048])
def test_normalises(width: int, dtype: torch.dtype) -> None:
    x, _, weight, bias = inputs(3, width, dtype)
    expected = reference.layer_norm(x, weight, bias)
    close = TOLERANCE[dtype]
    torch.testing.assert_close(kernel.layer_norm(x, weight, bias), expected, rtol=close, atol=close)


# the interpreter truncates sums in bfloat16, and a device rounds them
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("count", [1, 2])
def test_sums_are_rounded_one_after_the_other(count: int, dtype: torch.dtype) -> None:
    x, added, weight, bias = inputs(3, 1152, dtype)
    summed, normed = kernel.add_layer_norm(x, added[:count], weight, bias)
    expected_sum, expected = reference.add_layer_norm(x, added[:count], weight, bias)
    assert torch.equal(summed, expected_sum)
    torch.testing.assert_close(normed, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_tensor_may_have_fewer_rows_that_repeat(count: int) -> None:
    x, (first, second), weight, bias = inputs(6, 72, torch.float16)
    x, added = x.view(2, 3, 72), (first[:3], second.view(2, 3, 72))[:count]
    summed, normed = kernel.add_layer_norm(x, added, weight, bias)
    expected_sum, expected = reference.add_layer_norm(x, added, weight, bias)
    assert torch.equal(summed, expected_sum)
    torch.testing.assert_close(normed, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("launch", [kernel.norm_of_sum, reference.norm_of_sum])
def test_the_norm_of_a_sum_may_go_into_a_given_tensor(launch: Callable[..., Tensor]) -> None:
    x, added, weight, bias = inputs(3, 72, torch.float32)
    given = torch.full((4, 72), torch.nan)
    found = launch(x, added, weight, bias, into_TC=given[:3])
    assert found.data_ptr() == given.data_ptr()
    assert torch.equal(given[:3], launch(x, added, weight, bias))
    assert given[3].isnan().all()


def test_leading_dims_and_strides_are_free() -> None:
    x, _, weight, bias = inputs(6, 72, torch.float32)
    strided = x.view(2, 3, 72).transpose(0, 1)
    found = kernel.layer_norm(strided, weight, bias)
    torch.testing.assert_close(found, reference.layer_norm(strided, weight, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [72, 1024])
def test_the_norm_of_a_sum_comes_without_the_sum_or_in_fp8_beside_it(width: int) -> None:
    x, added, weight, bias = inputs(3, width, torch.float32)
    expected = kernel.add_layer_norm(x, added, weight, bias)[1]
    assert torch.equal(kernel.norm_of_sum(x, added, weight, bias), expected)
    normed, quantised = kernel.norm_of_sum_fp8(x, added, weight, bias)
    assert torch.equal(normed, expected)
    for found, wanted in zip(quantised, kernel.add_layer_norm_fp8(x, added, weight, bias)[1], strict=True):
        assert torch.equal(found.float(), wanted.float())


@pytest.mark.parametrize("width", [72, 1152])
def test_rows_go_straight_to_fp8(width: int) -> None:
    x, added, weight, bias = inputs(3, width, torch.float32)
    summed, (values, scale) = kernel.add_layer_norm_fp8(x, added, weight, bias)
    expected_sum, expected = reference.add_layer_norm(x, added, weight, bias)
    assert torch.equal(summed, expected_sum)
    assert (values.dtype, scale.shape) == (torch.float8_e4m3fn, (3, 1))
    # the interpreter halves what it rounds up to a power of two
    close = torch.isclose(values.float() * scale, expected, rtol=2**-4, atol=scale.max().item() * 2**-9)
    assert close.float().mean() > 0.95
    alone = kernel.layer_norm_fp8(summed, weight, bias)
    assert torch.equal(alone[0].float(), values.float())
    assert torch.equal(alone[1], scale)


def test_all_rows_may_have_a_given_scale() -> None:
    x, added, weight, bias = inputs(3, 1152, torch.float32)
    summed, (values, scale) = kernel.add_layer_norm_fp8(x, added, weight, bias, scale=0.25)
    expected_sum, expected = reference.add_layer_norm_fp8(x, added, weight, bias, scale=0.25)
    assert torch.equal(summed, expected_sum)
    assert torch.equal(scale, torch.full((3, 1), 0.25)) and torch.equal(scale, expected[1])
    # the interpreter halves what it rounds up to a power of two
    assert (values.float() == expected[0].float()).float().mean() > 0.92
    assert torch.equal(kernel.layer_norm_fp8(summed, weight, bias, scale=0.25)[0].float(), values.float())
