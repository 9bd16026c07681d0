"""The size of an image in pixels, from as little of it as its format needs.

It is the size the worker sees, so EXIF rotation is ignored as it is there.
"""

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from producer.errors import ImageUnreadable

__all__ = ["FORMATS", "size_in_file", "size_of", "size_of_head"]

FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
"""What a worker accepts by default, in Pillow's names."""

_HEADS: Final = (64 << 10, 1 << 20)  # bytes; nearly every header is in the first


def size_of(encoded: bytes) -> tuple[int, int]:
    """Return (width, height) of an encoded image; raises `ImageUnreadable`."""
    return _measure(io.BytesIO(encoded))


def size_in_file(path: Path) -> tuple[int, int]:
    """Return (width, height) of an image file, reading its header only; raises `ImageUnreadable`."""
    try:
        with path.open("rb") as file:
            return _measure(file)
    except OSError as error:
        raise ImageUnreadable(f"cannot read the image: {error.strerror}") from error


def size_of_head(read: Callable[[int | None], bytes]) -> tuple[int, int]:
    """Return (width, height) from the first bytes that `read(count)` gives, and from all (None) if these are too few.

    Raises `ImageUnreadable`, and what `read` raises.
    """
    for count in _HEADS:
        head = read(count)
        try:
            return size_of(head)
        except ImageUnreadable:
            if len(head) < count:  # that was all of it
                raise
    return size_of(read(None))


def _measure(file: BinaryIO) -> tuple[int, int]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # no pixel is decoded here: the number of them is no concern
            warnings.simplefilter("ignore")
            with Image.open(file, formats=FORMATS) as opened:
                return opened.size
    except Exception as error:
        # on hostile bytes Pillow's readers raise nearly everything
        raise ImageUnreadable("not an image of an accepted format, or a damaged one") from error
