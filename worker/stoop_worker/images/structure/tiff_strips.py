"""Checks that a TIFF's strips and tiles make no more work than their pixels."""

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from stoop_worker.errors import ImageTooLarge, ImageUndecodable
from stoop_worker.images.structure.jpeg import frame_kind

__all__ = ["Strips", "check_strips"]

_MOST_STRIPS = 65_536
_RAW, _JPEG = 1, 7
_SEQUENTIAL = (0xC0, 0xC1)
_MOST_SCANS = 4  # in one JPEG strip: one for each component
_Numbers = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Strips:
    """The parts that hold the pixels: strips, or tiles of `tile` (width, height) pixels, one set per sample."""

    compression: int
    offsets: _Numbers
    sizes: _Numbers
    tile: tuple[int, int] | None
    samples: int
    width: int
    height: int

    @property
    def tiled_pixels(self) -> int:
        """The number of pixels in all tiles, including those beyond the image's edges."""
        if self.tile is None:
            return 0
        across, down = self.tile
        return ceil(self.width / max(1, across)) * ceil(self.height / max(1, down)) * across * down * self.samples


def check_strips(encoded: bytes, strips: Strips, most_pixels: int) -> None:
    """Raise `ImageTooLarge` if the strips are too many or overlap, or the tiles are mostly beyond the image.

    Raises `ImageUndecodable` for a compressed strip without a size, because libtiff would read the rest of the file.
    """
    if strips.width * strips.height > most_pixels:
        return  # refused for that
    if strips.offsets.size > _MOST_STRIPS:
        raise ImageTooLarge(f"the TIFF has {strips.offsets.size} strips or tiles: at most {_MOST_STRIPS}")
    if strips.tiled_pixels > 2 * most_pixels * strips.samples:
        raise ImageTooLarge(f"the TIFF's tiles have {strips.tiled_pixels} pixels: at most {2 * most_pixels}")
    if strips.compression == _RAW:
        return
    if strips.offsets.size > 1 and strips.sizes.size < strips.offsets.size:
        raise ImageUndecodable("the image is damaged: a TIFF's compressed strips have no sizes")
    if strips.sizes.astype(np.float64).sum() > 2 * len(encoded):
        raise ImageTooLarge("the TIFF's strips or tiles have more bytes than the file: they overlap")
    if strips.compression == _JPEG:
        _check_jpegs(encoded, strips)


def _check_jpegs(encoded: bytes, strips: Strips) -> None:
    for offset, size in zip(strips.offsets.tolist(), strips.sizes.tolist(), strict=False):
        jpeg = encoded[offset : offset + size]
        if frame_kind(jpeg) not in _SEQUENTIAL or jpeg.count(b"\xff\xda") > _MOST_SCANS:
            raise ImageTooLarge("the TIFF's JPEG strips have many scans: save it again without progression")
