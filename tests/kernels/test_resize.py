"""Resizing is Pillow's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from stoop_worker.kernels.resize import Filter, resize


def same_as_pillow(high: int, wide: int, height: int, width: int, by: Filter) -> None:
    pixels = np.random.default_rng(high + wide).integers(0, 256, (high, wide, 3), dtype=np.uint8)
    expected = np.asarray(Pillow.fromarray(pixels).resize((width, height), Pillow.Resampling[by.name]))
    found = resize(torch.from_numpy(pixels), height, width, by=by)
    assert found.dtype == torch.uint8
    assert np.array_equal(found.numpy(), expected)


@settings(max_examples=100)
@given(*[st.integers(1, 120)] * 4, st.sampled_from(Filter))
def test_any_size(high: int, wide: int, height: int, width: int, by: Filter) -> None:
    same_as_pillow(high, wide, height, width, by)


@pytest.mark.parametrize("by", Filter)
@pytest.mark.parametrize(
    "sizes", [(1, 3000, 378, 378), (600, 850, 644, 1176), (700, 500, 700, 378), (600, 850, 608, 864), (20, 20, 20, 20)]
)
def test_sizes_that_occur(sizes: tuple[int, int, int, int], by: Filter) -> None:
    same_as_pillow(*sizes, by)
