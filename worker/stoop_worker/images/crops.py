"""Cuts pixels into the squares that the vision encoder takes: one global crop and a grid of local ones."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stoop_worker.images.load import Allocate, Image
from stoop_worker.images.resize import resizer
from stoop_worker.images.tiling import CropGeometry, Tiling, select_tiling

__all__ = ["Crops", "cut"]


@dataclass(frozen=True, slots=True)
class Crops:
    """The crops of one image: `pixels` (1 + rows * cols, crop size, crop size, 3) uint8, the global crop first.

    Local crop (row, col) has index 1 + row * cols + col. `digest` is the image's.
    """

    pixels: npt.NDArray[np.uint8]
    tiling: Tiling
    digest: bytes


def cut(image: Image, geometry: CropGeometry, allocate: Allocate | None = None) -> Crops:
    """Cut an image into its crops, resized by the geometry's `resize` without keeping the aspect ratio.

    The crops lie in the array that `allocate` returns, if it is given.
    """
    height, width, _ = image.pixels.shape
    tiling = select_tiling(height, width, geometry)
    side = geometry.crop_size
    shape = (1 + tiling.count, side, side, 3)
    pixels = allocate(shape) if allocate else np.empty(shape, dtype=np.uint8)
    resize = resizer(image.pixels, geometry.resize)
    pixels[0] = resize(side, side)
    if tiling.count == 1:
        pixels[1] = pixels[0]  # the only local crop is the whole image, as the global one is
    else:
        _cut_local(resize(*tiling.size(geometry)), tiling, geometry, pixels[1:])
    return Crops(pixels=pixels, tiling=tiling, digest=image.digest)


def _cut_local(
    resized: npt.NDArray[np.uint8], tiling: Tiling, geometry: CropGeometry, into: npt.NDArray[np.uint8]
) -> None:
    side, window = geometry.crop_size, geometry.window
    for index in range(tiling.count):
        top, left = window * (index // tiling.cols), window * (index % tiling.cols)
        into[index] = resized[top : top + side, left : left + side]
