"""Chooses the number and the layout of an image's local crops."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, sqrt

__all__ = ["CropGeometry", "Tiling", "select_tiling"]


@dataclass(frozen=True, slots=True)
class CropGeometry:
    """The model's crop sizes: `crop_size` and `patch_size` in pixels, `overlap_margin` in patches a side.

    `resize` names one of `resize.RESIZERS`.
    """

    crop_size: int = 378
    patch_size: int = 14
    overlap_margin: int = 4
    max_crops: int = 12
    resize: str = "pillow"

    @property
    def grid(self) -> int:
        """Patches along a crop's side."""
        return self.crop_size // self.patch_size

    @property
    def margin(self) -> int:
        """Pixels a side that a local crop shares with its neighbour."""
        return self.overlap_margin * self.patch_size

    @property
    def window(self) -> int:
        """Pixels from one local crop to the next."""
        return (self.grid - 2 * self.overlap_margin) * self.patch_size


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rows and columns of local crops."""

    rows: int
    cols: int

    @property
    def count(self) -> int:
        """Local crops in all."""
        return self.rows * self.cols

    def size(self, geometry: CropGeometry) -> tuple[int, int]:
        """Return the (height, width) in pixels that an image is resized to before it is cut into local crops."""
        return (
            self.rows * geometry.window + 2 * geometry.margin,
            self.cols * geometry.window + 2 * geometry.margin,
        )


@lru_cache(1024)
def select_tiling(height: int, width: int, geometry: CropGeometry) -> Tiling:
    """Choose the tiling for an image of height x width pixels (Moondream's rule).

    `max_crops` is not a strict limit: a very long image may get more crops along its long side.
    """
    inner_height, inner_width = height - 2 * geometry.margin, width - 2 * geometry.margin
    window, most = geometry.window, geometry.max_crops
    if inner_height <= window or inner_width <= window:
        return Tiling(1, 1)
    least_rows, least_cols = ceil(inner_height / window), ceil(inner_width / window)
    if least_rows * least_cols > most:
        shrink = sqrt(most / (least_rows * least_cols))
        return Tiling(max(1, floor(least_rows * shrink)), max(1, floor(least_cols * shrink)))
    rows = max(floor(sqrt(most * inner_height / inner_width)), least_rows)
    cols = max(floor(sqrt(most * inner_width / inner_height)), least_cols)
    if rows * cols > most and cols > rows:
        cols = floor(most / rows)
    elif rows * cols > most:
        rows = floor(most / cols)
    return Tiling(max(1, rows), max(1, cols))
