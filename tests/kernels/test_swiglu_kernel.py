"""The SwiGLU kernel against its reference."""

import pytest
import torch

from stoop_worker.kernels.swiglu import kernel, reference

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("columns", [1, 24, 2048, 2500])
def test_it_agrees_with_the_reference(columns: int, dtype: torch.dtype) -> None:
    wide = torch.full((3, 2 * columns + 5), torch.nan, dtype=dtype)
    wide[:, : 2 * columns] = 4 * torch.randn(3, 2 * columns)
    rows = wide[:, : 2 * columns]
    found = kernel.swiglu(rows)
    torch.testing.assert_close(found, reference.swiglu(rows), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_large_gates_neither_overflow_nor_vanish() -> None:
    rows = torch.tensor([[-80.0, 80.0, 3.0, 3.0]])
    torch.testing.assert_close(kernel.swiglu(rows), torch.tensor([[0.0, 240.0]]))


def test_no_rows_are_no_launch() -> None:
    assert kernel.swiglu(torch.zeros(0, 8)).shape == (0, 4)
