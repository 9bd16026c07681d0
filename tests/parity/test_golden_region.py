"""From bins to the numbers that are reported: those of a released model, to the last digit."""

import pytest
import torch
from torch import Tensor

from stoop_worker.models.moondream.region import read_coordinate, read_size


def one_hot(*bins: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(bins), 1024).float()


def test_a_box() -> None:
    x, y = read_coordinate(one_hot(269, 284)).tolist()
    width, height = read_size(one_hot(780, 838)[None])[0].tolist()
    assert (x - width / 2, y - height / 2, x + width / 2, y + height / 2) == (
        0.16633163392543793,
        0.1345907300710678,
        0.3590589910745621,
        0.4200967699289322,
    )


def test_a_point() -> None:
    assert read_coordinate(one_hot(289, 326)).tolist() == [0.2822265625, 0.318359375]


@pytest.mark.parametrize(("size_bin", "size"), [(0, 0.0009765625), (512, 0.031356047838926315), (1023, 1.0)])
def test_sizes_run_from_a_thousandth_to_one(size_bin: int, size: float) -> None:
    assert read_size(one_hot(size_bin, size_bin)[None]).tolist() == [[size, size]]


def test_the_largest_coordinate_is_below_one() -> None:
    assert read_coordinate(one_hot(1023)).tolist() == [0.9990234375]
    assert read_coordinate(one_hot(1023)).bfloat16().tolist() == [1.0]  # what is fed back is rounded
