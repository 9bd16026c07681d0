"""Cutting: every crop is the right window of the right resize."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from stoop_worker.images import CropGeometry, Image, cut
from tests.images.pictures import gradient

GEOMETRY = CropGeometry()
SMALL = CropGeometry(crop_size=12, patch_size=2, overlap_margin=1, max_crops=6)


def lanczos(image: Image, height: int, width: int) -> np.ndarray:
    return np.asarray(Pillow.fromarray(image.pixels).resize((width, height), Pillow.Resampling.LANCZOS))


@pytest.mark.parametrize(("height", "width", "crops"), [(480, 640, 9), (768, 1024, 13), (2000, 379, 7), (378, 378, 2)])
def test_shape_order_and_digest(height: int, width: int, crops: int) -> None:
    image = Image.of(gradient(height, width))
    cut_image = cut(image, GEOMETRY)
    assert cut_image.pixels.shape == (crops, 378, 378, 3)
    assert cut_image.pixels.dtype == np.uint8
    assert cut_image.digest == image.digest
    assert (cut_image.pixels[0] == lanczos(image, 378, 378)).all()


@given(st.integers(1, 80), st.integers(1, 80))
def test_every_local_crop_is_its_window(height: int, width: int) -> None:
    image = Image.of(gradient(height, width))
    crops = cut(image, SMALL)
    resized = lanczos(image, *crops.tiling.size(SMALL))
    for row in range(crops.tiling.rows):
        for col in range(crops.tiling.cols):
            window = resized[8 * row : 8 * row + 12, 8 * col : 8 * col + 12]
            assert (crops.pixels[1 + row * crops.tiling.cols + col] == window).all()


@given(st.integers(1, 80), st.integers(1, 80))
def test_local_crops_cover_the_resized_image_and_no_more(height: int, width: int) -> None:
    crops = cut(Image.of(gradient(height, width)), SMALL)
    high, wide = crops.tiling.size(SMALL)
    covered = np.zeros((high, wide), dtype=bool)
    for index in range(crops.tiling.count):
        top, left = 8 * (index // crops.tiling.cols), 8 * (index % crops.tiling.cols)
        covered[top : top + 12, left : left + 12] = True
        assert top + 12 <= high
        assert left + 12 <= wide
    assert covered.all()


@given(st.integers(1, 12), st.integers(1, 80))
def test_one_local_crop_is_the_global_one(height: int, width: int) -> None:
    crops = cut(Image.of(gradient(height, width)), SMALL)
    assert crops.tiling.count == 1
    assert (crops.pixels[0] == crops.pixels[1]).all()


def test_an_image_of_the_crops_size_is_not_changed() -> None:
    pixels = gradient(378, 378)
    assert (cut(Image.of(pixels), GEOMETRY).pixels == pixels).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (400, 10_000)])
def test_extreme_shapes_are_cut(size: tuple[int, int]) -> None:
    crops = cut(Image.of(gradient(*size)), GEOMETRY)
    assert len(crops.pixels) == 1 + crops.tiling.count
