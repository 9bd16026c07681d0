"""Moves boxes and points, as fractions of an image, into the image. Models answer with corners outside the image or in
the wrong order, which no annotation format accepts.
"""

from typing import Final

from stoop_schemas.skill import Box, Point

__all__ = ["inside", "point_inside"]

_LEAST: Final = 1e-6  # of the image's side; a smaller box has no area in any format
_LEAST_PIXELS: Final = 0.02  # a smaller box may vanish in formats that round to hundredths of a pixel


def inside(box: Box, size: tuple[int, int] | None = None) -> Box | None:
    """Return the part of the box that lies in the image, its corners in order; None if that has no area.

    `size` is the image's (width, height) in pixels where it is known.
    """
    least_x, least_y = (max(_LEAST, _LEAST_PIXELS / side) for side in size) if size else (_LEAST, _LEAST)
    left, right = sorted((_clamped(box.x_min), _clamped(box.x_max)))
    top, bottom = sorted((_clamped(box.y_min), _clamped(box.y_max)))
    if right - left < least_x or bottom - top < least_y:
        return None
    return Box(left, top, right, bottom)


def point_inside(point: Point) -> Point:
    """Return the place in the image next to the point."""
    return Point(_clamped(point.x), _clamped(point.y))


def _clamped(value: float) -> float:
    return min(max(float(value), 0.0), 1.0)
