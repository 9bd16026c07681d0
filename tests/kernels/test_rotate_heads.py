"""The rotation of an encoder's queries and keys."""

import math

import torch

from stoop_worker.kernels.rotate_heads import rotate_heads


def test_a_quarter_turn_swaps_the_halves_and_leaves_values_alone() -> None:
    qkv = torch.arange(12, dtype=torch.float64).view(1, 3, 1, 4)
    quarter = torch.tensor([[math.cos(math.pi / 2), math.sin(math.pi / 2)]], dtype=torch.float64)
    still = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    rotate_heads(qkv, torch.stack((quarter, still), dim=1))  # the first pair turns, the second does not
    expected = torch.tensor([[-2, 1, 0, 3], [-6, 5, 4, 7], [8, 9, 10, 11]], dtype=torch.float64)
    torch.testing.assert_close(qkv.view(3, 4), expected)


def test_bfloat16_is_rounded_once() -> None:
    qkv = torch.randn(5, 3, 2, 8).bfloat16()
    angles = torch.randn(5, 4)
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1)
    exact = qkv.float()
    rotate_heads(exact, rotations)
    rotate_heads(qkv, rotations)
    assert torch.equal(qkv, exact.bfloat16())
