"""The kernels that turn rows to fp8 against their reference."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.fp8 import kernel, reference

Quantise = Callable[[Tensor], tuple[Tensor, Tensor]]


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
@pytest.mark.parametrize(
    ("ours", "plain"), [(kernel.quantise_rows, reference.quantise_rows), (kernel.gelu_fp8, reference.gelu_fp8)]
)
@pytest.mark.parametrize("shape", [(1, 48), (2, 2, 4304)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_values_and_scales(ours: Quantise, plain: Quantise, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = 4 * torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    (values, scale), (expected, expected_scale) = ours(x), plain(x)
    torch.testing.assert_close(scale, expected_scale, rtol=1e-5, atol=0)
    # the interpreter halves what it rounds up to a power of two
    assert (values.float() == expected.float()).float().mean() > 0.92


def test_a_row_of_zeros_stays_zero() -> None:
    values, scale = kernel.quantise_rows(torch.zeros(1, 48))
    assert torch.equal(values.float(), torch.zeros(1, 48))
    assert torch.isfinite(scale).all()
