"""Crops against those of Moondream's reference cropper, with Pillow and with libvips."""

import hashlib

import numpy as np
import PIL
import pytest

from stoop_worker.images import CropGeometry, cut
from tests.support.golden_image import golden_image

HASHES = {
    (378, 378): ("4bf1c7ca768ef15d", "dbdbb592608c949a"),
    (640, 480): ("75684472860c93c5", "8da6f84493855fac"),
    (1920, 1080): ("044ea424fc5adbc6", "3649522da5ccbd2e"),
    (100, 2000): ("f48f373a46320002", "1e90290288cc6cac"),
    (379, 2000): ("227af81ba233433d", "61cf24ebb6a4b3ad"),
}
BY_LIBVIPS = {
    (378, 378): "dbdbb592608c949a",
    (640, 480): "c03582f2fcfd8699",
    (1920, 1080): "620f4b8f5cceefd6",
    (100, 2000): "130d94df552c2a7d",
    (379, 2000): "c1c743b14cb0712d",
}
SUMS = {
    (640, 480): (53494176, 33569219, 41827320, 50083991),
    (1920, 1080): (53594098, 33598263, 41842724, 50089797),
    (379, 2000): (53519862, 39293396, 44975023, 50647102),
}
other_pillow = pytest.mark.skipif(
    PIL.__version__.split(".")[0] != "13", reason="hashes are of Pillow 13: another version may round otherwise"
)


def sha(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels)).hexdigest()[:16]


@pytest.mark.parametrize(("size", "hashes"), HASHES.items())
def test_the_image_is_the_one_the_hashes_were_taken_of(size: tuple[int, int], hashes: tuple[str, str]) -> None:
    assert sha(golden_image(*size).pixels) == hashes[0]


@other_pillow
@pytest.mark.parametrize(("size", "hashes"), HASHES.items())
def test_crops_are_the_reference_s_to_the_bit(size: tuple[int, int], hashes: tuple[str, str]) -> None:
    assert sha(cut(golden_image(*size), CropGeometry()).pixels) == hashes[1]


@pytest.mark.parametrize(("size", "hash"), BY_LIBVIPS.items())
def test_crops_by_libvips_are_the_reference_s_to_the_bit(size: tuple[int, int], hash: str) -> None:
    pyvips = pytest.importorskip("pyvips")
    if (pyvips.version(0), pyvips.version(1)) != (8, 18):
        pytest.skip("hashes are of libvips 8.18: another version may round otherwise")
    assert sha(cut(golden_image(*size), CropGeometry(resize="libvips")).pixels) == hash


@pytest.mark.parametrize(("size", "sums"), SUMS.items())
def test_crops_have_the_reference_s_brightness(size: tuple[int, int], sums: tuple[int, ...]) -> None:
    found = cut(golden_image(*size), CropGeometry()).pixels[:4].reshape(4, -1).sum(axis=1, dtype=np.int64)
    np.testing.assert_allclose(found, sums, rtol=1e-4)
