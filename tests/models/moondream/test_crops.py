"""Crops cut by the device's way are those that Pillow cuts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.images import CropGeometry, Image, cut
from stoop_worker.models.moondream.crops import cut_on_device
from tests.images.pictures import gradient

GEOMETRY = CropGeometry()
SMALL = CropGeometry(crop_size=12, patch_size=2, overlap_margin=1, max_crops=6)


def same_crops(height: int, width: int, geometry: CropGeometry) -> None:
    image = Image.of(gradient(height, width))
    expected = cut(image, geometry)
    count = expected.tiling.count
    found = torch.zeros(1 if count == 1 else 1 + count, *expected.pixels.shape[1:], dtype=torch.uint8)
    cut_on_device(torch.from_numpy(image.pixels), geometry, found)
    assert np.array_equal(found.numpy(), expected.pixels[: len(found)])


@settings(max_examples=60)
@given(st.integers(1, 120), st.integers(1, 120))
def test_small_images(height: int, width: int) -> None:
    same_crops(height, width, SMALL)


@pytest.mark.parametrize("size", [(1, 1), (1, 2000), (378, 378), (600, 850), (1500, 379)])
def test_images_of_every_shape(size: tuple[int, int]) -> None:
    same_crops(*size, GEOMETRY)
