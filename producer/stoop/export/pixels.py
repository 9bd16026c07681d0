"""The size of an image in pixels and its orientation, from as little of it as its format needs."""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from stoop.errors import ImageUnreadable
from stoop.export.orientation import STORED, read_orientation, swaps_sides

__all__ = ["FORMATS", "Shape", "shape_in_file", "shape_of", "shape_of_head"]

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""The formats that a worker accepts by default, by Pillow's names."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An image's (width, height) as the worker sees it, and the EXIF orientation that readers apply to it."""

    stored: tuple[int, int]
    orientation: int = STORED

    @property
    def shown(self) -> tuple[int, int]:
        """The (width, height) that readers see."""
        width, height = self.stored
        return (height, width) if swaps_sides(self.orientation) else (width, height)


_HEADS: Final = (64 << 10, 1 << 20)  # bytes; nearly every header is in the first


def shape_of(encoded: bytes) -> Shape:
    """Return the shape of an encoded image; raises `ImageUnreadable`."""
    return _measure(io.BytesIO(encoded))


def shape_in_file(path: Path) -> Shape:
    """Return the shape of an image file, reading its header only; raises `ImageUnreadable`."""
    try:
        with path.open("rb") as file:
            return _measure(file)
    except OSError as error:
        raise ImageUnreadable(f"cannot read the image: {error.strerror}") from error


def shape_of_head(read: Callable[[int | None], bytes]) -> Shape:
    """Return the shape from the first bytes that `read(count)` gives, and from all (None) if these are too few.

    Raises `ImageUnreadable`, and the errors of `read`.
    """
    for count in _HEADS:
        head = read(count)
        try:
            return shape_of(head)
        except ImageUnreadable:
            if len(head) < count:  # that was all of it
                raise
    return shape_of(read(None))


def _measure(file: BinaryIO) -> Shape:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # no pixel is decoded here, so their number does not matter
            warnings.simplefilter("ignore")
            with Image.open(file, formats=FORMATS) as opened:
                return Shape(opened.size, read_orientation(opened))
    except Exception as error:
        # on hostile bytes Pillow's readers raise nearly everything
        raise ImageUnreadable("not an image of an accepted format, or a damaged one") from error
