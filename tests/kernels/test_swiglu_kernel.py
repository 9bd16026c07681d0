"""The kernels of SwiGLU and GeGLU against their references."""

import pytest
import torch

from stoop_worker.kernels.swiglu import kernel, reference

# the exponential of a large negative gate is infinite, and its inverse is the expected 0
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp")

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("columns", [1, 24, 2048, 2500])
@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_it_agrees_with_the_reference(name: str, columns: int, dtype: torch.dtype) -> None:
    wide = torch.full((3, 2 * columns + 5), torch.nan, dtype=dtype)
    wide[:, : 2 * columns] = 4 * torch.randn(3, 2 * columns)
    rows = wide[:, : 2 * columns]
    found, expected = (getattr(module, name)(rows) for module in (kernel, reference))
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_large_gates_neither_overflow_nor_vanish() -> None:
    rows = torch.tensor([[-80.0, 80.0, 3.0, 3.0]])
    for found in (kernel.swiglu(rows), kernel.geglu(rows)):
        torch.testing.assert_close(found, torch.tensor([[0.0, 240.0]]))


def test_no_rows_launch_no_kernel() -> None:
    assert kernel.swiglu(torch.zeros(0, 8)).shape == (0, 4)
