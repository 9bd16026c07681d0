import pytest
import torch

from stoop_worker.kernels.rms_norm import add_rms_norm, rms_norm


def test_rows_are_divided_by_their_root_mean_square() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64)
    found = rms_norm(x, weight, epsilon=0.0)[0]
    assert found.tolist() == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])
    assert rms_norm(x, weight, epsilon=1e-6)[1].tolist() == [0.0, 0.0]


def test_epsilon_is_added_to_the_mean_of_squares() -> None:
    found = rms_norm(torch.full((1, 4), 2.0), torch.ones(4), epsilon=12.0)
    assert found.tolist() == [[0.5] * 4]


def test_it_is_torch_s_norm() -> None:
    x, weight = torch.randn(2, 3, 72), torch.randn(72)
    torch.testing.assert_close(rms_norm(x, weight, epsilon=1e-5), torch.nn.functional.rms_norm(x, (72,), weight, 1e-5))


def test_halves_are_rounded_once() -> None:
    x, weight = torch.randn(3, 72).bfloat16(), torch.randn(72).bfloat16()
    exact = rms_norm(x.float(), weight.float(), epsilon=1e-5)
    assert torch.equal(rms_norm(x, weight, epsilon=1e-5), exact.bfloat16())


def test_sums_come_first_and_are_returned() -> None:
    x, first, second = torch.randn(3, 3, 8).bfloat16()
    summed, normed = add_rms_norm(x, (first, second), torch.ones(8).bfloat16(), epsilon=1e-5)
    assert torch.equal(summed, (x + first) + second)
    assert torch.equal(normed, rms_norm(summed, torch.ones(8).bfloat16(), epsilon=1e-5))
