"""The resizing kernel against its reference."""

import pytest
import torch

from stoop_worker.kernels.resize import Filter, kernel, reference


@pytest.mark.parametrize("by", Filter)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 3, 5), (20, 100, 9, 30), (100, 7, 40, 60), (17, 33, 17, 33), (9, 50, 1, 1), (40, 40, 31, 50)]
)
def test_equal_to_the_bit(sizes: tuple[int, int, int, int], by: Filter) -> None:
    high, wide, height, width = sizes
    random = torch.Generator().manual_seed(wide)
    pixels = torch.randint(0, 256, (high, wide, 3), dtype=torch.uint8, generator=random)
    expected = reference.resize(pixels, height, width, by=by)
    assert torch.equal(kernel.resize(pixels, height, width, by=by), expected)
    for module in (kernel, reference):
        into = torch.zeros(2, height, width, 3, dtype=torch.uint8)
        found = module.resize(pixels, height, width, by=by, into_HWC=into[1])
        assert torch.equal(into[1], expected) and found.data_ptr() == into[1].data_ptr() and not into[0].any()
