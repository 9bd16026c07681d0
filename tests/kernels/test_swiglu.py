import pytest
import torch
from torch.nn import functional

from stoop_worker.kernels.swiglu import geglu, swiglu


def test_gates_come_first_and_ups_after_them() -> None:
    rows = torch.tensor([[0.0, 1.0, 5.0, 2.0]], dtype=torch.float64)
    assert swiglu(rows)[0].tolist() == pytest.approx([0.0, 2 * torch.sigmoid(torch.tensor(1.0)).item()])


def test_bfloat16_is_rounded_once() -> None:
    rows = torch.randn(3, 16).bfloat16()
    exact = functional.silu(rows[:, :8].float()) * rows[:, 8:].float()
    assert torch.equal(swiglu(rows), exact.bfloat16())


def test_geglu_is_the_gelu_of_the_gates_by_tanh() -> None:
    rows = torch.randn(3, 16, dtype=torch.float64)
    expected = functional.gelu(rows[:, :8], approximate="tanh") * rows[:, 8:]
    assert torch.equal(geglu(rows), expected)
