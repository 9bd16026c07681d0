"""Whether an answer is right: the pictures' truth is known, so the demo can check itself."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from producer.demo.burst import Errand
from producer.demo.pictures import Picture, Shape
from schemas.skill import Box, Output, Point

__all__ = ["is_right"]

_Found = TypeVar("_Found")

_OVERLAP = 0.5
"""Least intersection over union of a box that counts as found."""


def is_right(errand: Errand, output: Output | None) -> bool:
    """Say whether the output is what is true of the errand's picture; no output never is."""
    if output is None:
        return False
    picture = errand.picture
    if output.objects is not None and picture is not None:
        return _all_found(_wanted(errand, picture), output.objects, lambda shape, box: _overlaps(shape, box, picture))
    if output.points is not None and picture is not None:
        return _all_found(_wanted(errand, picture), output.points, lambda shape, point: _inside(shape, point, picture))
    if output.caption is not None and picture is not None:
        return all(shape.name in output.caption.lower() for shape in picture.shapes)
    return (output.answer or "").strip(" .").lower() == errand.truth.lower()


def _wanted(errand: Errand, picture: Picture) -> list[Shape]:
    return [shape for shape in picture.shapes if shape.name == errand.fields["object"]]


def _all_found(wanted: list[Shape], found: Sequence[_Found], fits: Callable[[Shape, _Found], bool]) -> bool:
    """Say whether each shape has one find of its own, and none is left over."""
    if len(wanted) != len(found):
        return False
    return all(any(fits(shape, one) for one in found) for shape in wanted) and all(
        any(fits(shape, one) for shape in wanted) for one in found
    )


def _inside(shape: Shape, point: Point, picture: Picture) -> bool:
    left, top, right, bottom = shape.box
    x, y = point.x * picture.size[0], point.y * picture.size[1]
    return left <= x <= right and top <= y <= bottom


def _overlaps(shape: Shape, box: Box, picture: Picture) -> bool:
    width, height = picture.size
    found = (box.x_min * width, box.y_min * height, box.x_max * width, box.y_max * height)
    left, top = max(found[0], shape.box[0]), max(found[1], shape.box[1])
    right, bottom = min(found[2], shape.box[2]), min(found[3], shape.box[3])
    shared = max(0.0, right - left) * max(0.0, bottom - top)
    return shared >= _OVERLAP * (_area(found) + _area(shape.box) - shared)


def _area(box: tuple[float, float, float, float]) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])
