"""Resizes an image so that whole groups of patches cover it, at nearly its own resolution.

The rule is that of Qwen's vision models: `smart_resize` in their image processor.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image as Pillow

from stoop_worker.errors import ImageUndecodable
from stoop_worker.images.load import Allocate, Image

__all__ = ["ANY_PIXELS", "MOST_EXCESS", "PatchRule", "PixelLimits", "fit", "fit_later", "fitting_size"]

_MOST_SLENDER = 200
MOST_EXCESS = 2
"""An image with more times the pixels of its rule is resized at once, because it would take much memory."""


@dataclass(frozen=True, slots=True)
class PixelLimits:
    """The lowest and the highest number of pixels that a job allows; None leaves it to the model."""

    min_pixels: int | None = None
    max_pixels: int | None = None


ANY_PIXELS = PixelLimits()
"""No limits of a job's own."""


@dataclass(frozen=True, slots=True)
class PatchRule:
    """Patches have `patch` pixels a side; `merge` x `merge` of them become one embedding.

    A resized image has from `min_pixels` to `max_pixels` pixels; a job may ask for others, up to `most_pixels`.
    """

    patch: int = 16
    merge: int = 2
    min_pixels: int = 65_536
    max_pixels: int = 1_310_720
    most_pixels: int = 5_242_880

    @property
    def cell(self) -> int:
        """The side of an embedding's cell, in pixels."""
        return self.patch * self.merge

    def within(self, pixels: "PixelLimits") -> "PatchRule":
        """Return the rule with a job's limits; where they contradict the model's own, the job's win."""
        if pixels == ANY_PIXELS:
            return self
        most = min(pixels.max_pixels or max(self.max_pixels, pixels.min_pixels or 0), self.most_pixels)
        return replace(self, min_pixels=min(pixels.min_pixels or self.min_pixels, most), max_pixels=most)

    def width_of(self, height: int, width: int) -> int:
        """Return the number of embeddings of a resized image."""
        return (height // self.cell) * (width // self.cell)


def fitting_size(height: int, width: int, rule: PatchRule) -> tuple[int, int]:
    """Return the height and width to which an image is resized: multiples of the cell, near its own proportions.

    Raises `ImageUndecodable` for an image that is too slender.
    """
    if max(height, width) > _MOST_SLENDER * min(height, width):
        raise ImageUndecodable(f"the image is more than {_MOST_SLENDER} times as long as it is wide")
    cell = rule.cell
    rows, columns = round(height / cell), round(width / cell)
    if rows * columns * cell * cell > rule.max_pixels:
        shrink = math.sqrt(height * width / rule.max_pixels)
        rows = max(1, math.floor(height / shrink / cell))
        columns = max(1, math.floor(width / shrink / cell))
    elif rows * columns * cell * cell < rule.min_pixels:
        grow = math.sqrt(rule.min_pixels / (height * width))
        rows, columns = math.ceil(height * grow / cell), math.ceil(width * grow / cell)
    return rows * cell, columns * cell


def fit_later(image: Image, rule: PatchRule, allocate: Allocate | None = None) -> Image:
    """Return the image with the size to which the device resizes it; one that is much too large is resized now.

    Until its job ends, such an image would take several times as much memory.
    """
    height, width, _ = image.pixels.shape
    if height * width > MOST_EXCESS * rule.max_pixels:
        return fit(image, rule, allocate)
    return replace(image, fitted=fitting_size(height, width, rule))


def fit(image: Image, rule: PatchRule, allocate: Allocate | None = None) -> Image:
    """Resize an image by Pillow's BICUBIC; the pixels lie in the array that `allocate` returns, if it is given."""
    height, width, _ = image.pixels.shape
    size = fitting_size(height, width, rule)
    if size == (height, width):
        resized = image.pixels
    else:
        resized = np.asarray(Pillow.fromarray(image.pixels).resize(size[::-1], Pillow.Resampling.BICUBIC))
    if allocate is None:
        return Image(np.array(resized), image.digest)  # a copy, because Pillow's memory is read-only
    pixels = allocate(resized.shape)
    pixels[:] = resized
    return Image(pixels, image.digest)
