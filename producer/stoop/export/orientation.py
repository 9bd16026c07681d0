"""EXIF orientation: transposes images, and the boxes and points in them, for display by readers.

The model sees the pixels as they are stored, so its answers are in their frame. Browsers, annotation tools and most
loaders turn the image first.
"""

from typing import TYPE_CHECKING, Final

from stoop_schemas.skill import Box, Point

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["STORED", "orient_box", "orient_image", "orient_point", "read_orientation", "swaps_sides"]

STORED: Final = 1
"""The orientation in which nothing is turned."""

_TAG: Final = 0x0112
_MOST: Final = 8


def read_orientation(opened: "Image") -> int:
    """Return the EXIF orientation, 1 to 8, of an image whose header Pillow has read; its pixels are not decoded."""
    from PIL.Image import Exif

    if opened.format == "TIFF":  # Pillow transposes these on loading, so the worker sees them turned
        return STORED
    exif = Exif()
    try:
        exif.load(opened.info.get("exif") or b"")
        found = exif.get(_TAG)
    except Exception:  # damaged metadata raises nearly anything, and readers ignore it
        return STORED
    return found if isinstance(found, int) and 1 <= found <= _MOST else STORED


def swaps_sides(orientation: int) -> bool:
    """Return whether readers swap the image's width and height."""
    return orientation >= 5


def orient_point(point: Point, orientation: int) -> Point:
    """Return the point as readers see it, as fractions."""
    x, y = point.x, point.y
    turned = {
        2: (1 - x, y),
        3: (1 - x, 1 - y),
        4: (x, 1 - y),
        5: (y, x),
        6: (1 - y, x),
        7: (1 - y, 1 - x),
        8: (y, 1 - x),
    }
    return Point(*turned[orientation]) if orientation in turned else point


def orient_box(box: Box, orientation: int) -> Box:
    """Return the box as readers see it, with its corners in order."""
    if orientation == STORED:
        return box
    one, other = (orient_point(Point(*at), orientation) for at in ((box.x_min, box.y_min), (box.x_max, box.y_max)))
    (left, right), (top, bottom) = sorted((one.x, other.x)), sorted((one.y, other.y))
    return Box(left, top, right, bottom)


def orient_image(image: "Image", orientation: int) -> "Image":
    """Return the image turned as readers show it."""
    from PIL.Image import Transpose

    transposes = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(transposes[orientation]) if orientation in transposes else image
