"""Weights in float8 with a scale for each block: the reference and the kernel against plain torch."""

import pytest
import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, dense, joined
from stoop_worker.kernels.skinny_linear import linear

SIDE = 4


def drawn(rows: int, columns: int) -> BlockFp8:
    scales = 1 + torch.rand(-(-rows // SIDE), -(-columns // SIDE))
    return BlockFp8(torch.randn(rows, columns).to(torch.float8_e4m3fn), scales, SIDE)


def written_out(weight: BlockFp8) -> Tensor:
    rows, columns = weight.shape
    return torch.tensor(
        [
            [float(weight.values_NC[row, column]) * float(weight.scales[row // SIDE, column // SIDE])]
            for row in range(rows)
            for column in range(columns)
        ]
    ).view(rows, columns)


@pytest.mark.parametrize("shape", [(8, 12), (6, 9)])
def test_values_are_multiplied_with_the_scales_of_their_blocks(shape: tuple[int, int]) -> None:
    weight = drawn(*shape)
    torch.testing.assert_close(dense(weight, torch.float32), written_out(weight))
    assert dense(weight, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_it_is_a_linear_layer(rows: int) -> None:
    weight, x = drawn(8, 12), torch.randn(rows, 12)
    torch.testing.assert_close(linear(x, weight), x @ written_out(weight).T)


def test_a_plain_weight_is_one_too() -> None:
    weight, x = torch.randn(8, 12), torch.randn(3, 12)
    torch.testing.assert_close(linear(x, weight), x @ weight.T)


def test_rows_of_whole_blocks_are_joined() -> None:
    first, second = drawn(8, 12), drawn(4, 12)
    whole = joined([first, second])
    assert whole is not None
    assert torch.equal(dense(whole, torch.float32), torch.cat([dense(part, torch.float32) for part in (first, second)]))


def test_rows_of_partial_blocks_are_not() -> None:
    assert joined([drawn(6, 12), drawn(4, 12)]) is None
