import pytest
import torch

from stoop_worker.kernels.rope import rope, rotation

ROTARY, HEAD_DIM, THETA = 32, 64, 10000.0


def test_frequencies_fall_from_one_by_powers_of_theta() -> None:
    cos, sin = rotation(torch.tensor([1]), ROTARY, THETA, dtype=torch.float64)
    angles = torch.atan2(sin, cos)[0]
    assert angles[[0, 1, 8, 15]].tolist() == pytest.approx([1, 0.5623413, 0.01, 1.7782794e-4], rel=1e-6)


def test_pairs_are_taken_half_apart_and_laid_side_by_side() -> None:
    x = torch.randn(1, 2, HEAD_DIM, dtype=torch.float64)
    found = rope(x, rotation(torch.tensor([7]), ROTARY, THETA, dtype=torch.float64))
    for pair in range(ROTARY // 2):
        turn = torch.polar(
            torch.ones((), dtype=torch.float64), torch.tensor(7 * THETA ** (-2 * pair / ROTARY)).double()
        )
        turned = torch.complex(x[0, :, pair], x[0, :, ROTARY // 2 + pair]) * turn
        torch.testing.assert_close(found[0, :, 2 * pair], turned.real, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found[0, :, 2 * pair + 1], turned.imag, rtol=1e-6, atol=1e-6)
    assert torch.equal(found[..., ROTARY:], x[..., ROTARY:])


def test_products_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, HEAD_DIM, dtype=torch.float64)

    def product(q_position: int, k_position: int) -> float:
        turned = [
            rope(x, rotation(torch.tensor([at]), ROTARY, THETA, dtype=x.dtype))
            for x, at in ((q, q_position), (k, k_position))
        ]
        return (turned[0] * turned[1]).sum().item()

    assert product(12, 5) == pytest.approx(product(1012, 1005), rel=1e-9)
    assert product(12, 5) != pytest.approx(product(12, 6), rel=1e-3)


def test_bfloat16_is_rotated_in_float32_and_rounded_once() -> None:
    x = torch.randn(3, 2, HEAD_DIM).bfloat16()
    positions = torch.tensor([0, 729, 2047])
    found = rope(x, rotation(positions, ROTARY, THETA, dtype=x.dtype))
    exact = rope(x.float(), rotation(positions, ROTARY, THETA, dtype=torch.float32))
    assert torch.equal(found, exact.bfloat16())


def test_leading_dims_share_or_have_their_own_positions() -> None:
    x = torch.randn(2, 3, 1, HEAD_DIM)
    own = torch.tensor([[0, 1, 2], [5, 6, 7]])
    found = rope(x, rotation(own, ROTARY, THETA, dtype=x.dtype))
    for row in range(2):
        torch.testing.assert_close(found[row], rope(x[row], rotation(own[row], ROTARY, THETA, dtype=x.dtype)))
