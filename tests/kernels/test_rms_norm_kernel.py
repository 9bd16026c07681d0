"""The RMS norm kernel against its reference."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.rms_norm import kernel, reference

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
EPSILON = 1e-3


def inputs(rows: int, width: int, dtype: torch.dtype) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor]:
    random = torch.Generator().manual_seed(width)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    return 0.1 * draw(rows, width), (draw(rows, width), draw(rows, width)), draw(width)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("width", [2, 72, 128, 2048, 3072])
def test_normalises(width: int, dtype: torch.dtype) -> None:
    x, _, weight = inputs(3, width, dtype)
    expected = reference.rms_norm(x, weight, epsilon=EPSILON)
    found = kernel.rms_norm(x, weight, epsilon=EPSILON)
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# the interpreter truncates sums in bfloat16, and a device rounds them
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("count", [1, 2])
def test_sums_are_rounded_one_after_the_other(count: int, dtype: torch.dtype) -> None:
    x, added, weight = inputs(3, 2560, dtype)
    summed, normed = kernel.add_rms_norm(x, added[:count], weight, epsilon=EPSILON)
    expected_sum, expected = reference.add_rms_norm(x, added[:count], weight, epsilon=EPSILON)
    assert torch.equal(summed, expected_sum)
    torch.testing.assert_close(normed, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


# the same holds for the norm that is added
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("width", [2, 72, 768])
def test_the_norm_of_a_block_is_added(width: int, dtype: torch.dtype) -> None:
    x, (added, _), weight = inputs(3, width, dtype)
    weights = weight, weight.flip(0)
    summed, normed = kernel.rms_norm_add_rms_norm(x, added, weights, epsilon=EPSILON)
    expected_sum, expected = reference.rms_norm_add_rms_norm(x, added, weights, epsilon=EPSILON)
    torch.testing.assert_close(summed, expected_sum, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    torch.testing.assert_close(normed, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_the_norm_may_have_another_dtype() -> None:
    x, _, weight = inputs(3, 72, torch.bfloat16)
    found = kernel.rms_norm(x, weight, epsilon=EPSILON, dtype=torch.float16)
    expected = reference.rms_norm(x.float(), weight.float(), epsilon=EPSILON)
    torch.testing.assert_close(found, expected.half(), rtol=2e-3, atol=2e-3)


def test_leading_dims_and_strides_are_free() -> None:
    x, _, weight = inputs(6, 72, torch.float32)
    strided = x.view(2, 3, 72).transpose(0, 1)
    found = kernel.rms_norm(strided, weight, epsilon=EPSILON)
    torch.testing.assert_close(found, reference.rms_norm(strided, weight, epsilon=EPSILON), rtol=1e-5, atol=1e-5)


def test_no_rows_launch_no_kernel() -> None:
    summed, normed = kernel.add_rms_norm(torch.zeros(0, 8), (torch.zeros(0, 8),), torch.ones(8), epsilon=EPSILON)
    assert summed.shape == normed.shape == (0, 8)
