"""The kernel for products of one row against its reference; outputs and the memory next to the inputs are NaN."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.row_linear import RowNorm, kernel, reference
from stoop_worker.kernels.row_linear.kernel import Cut
from tests.kernels.test_skinny_linear_kernel import within

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
WIDTH, OUT = 384, 64
CUTS = {"all columns": None, "few columns": Cut(rows=32, columns=128)}
STEPS = ["norm", "gated", "sum", "norm and gated", "norm and sum", "neither"]


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Fill what `torch.empty` returns with NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def steps_of(named: str, dtype: torch.dtype) -> dict[str, Any]:
    steps: dict[str, Any] = {"gated": "gated" in named}
    if "norm" in named:
        steps["norm"] = RowNorm(within(1, WIDTH, dtype)[0], 1e-5)
    if "sum" in named:
        steps["added_to_BN"] = within(1, OUT, dtype)
    return steps


def exactly(x: Tensor, weight: Tensor, steps: dict[str, Any]) -> Tensor:
    """Return the reference in float64."""
    exact = dict(steps)
    if "norm" in steps:
        exact["norm"] = RowNorm(steps["norm"].weight_C.double(), steps["norm"].epsilon)
    if "added_to_BN" in steps:
        exact["added_to_BN"] = steps["added_to_BN"].double()
    return reference.row_linear(x.double(), weight.double(), **exact)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("named", STEPS)
def test_row_linear(named: str, cut: str, dtype: torch.dtype) -> None:
    steps = steps_of(named, dtype)
    x, weight = within(1, WIDTH, dtype), within(2 * OUT if steps["gated"] else OUT, WIDTH, dtype)
    found = kernel.row_linear(x, weight, cut=CUTS[cut], **steps)
    assert (found.dtype, found.shape) == (dtype, (1, OUT))
    expected = exactly(x, weight, steps)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_it_takes_sizes_that_blocks_divide() -> None:
    assert kernel.divides(torch.zeros(64, 384))
    assert not kernel.divides(torch.zeros(72, 384))
    assert not kernel.divides(torch.zeros(64, 200))
    assert not kernel.divides(torch.zeros(384, 64).T)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        kernel.row_linear(torch.zeros(2, 384), torch.zeros(64, 384))
