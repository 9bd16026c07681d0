"""Checks the demo's answers against the known contents of the pictures."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from stoop.demo.burst import DemoJob
from stoop.demo.pictures import Picture, Shape
from stoop_schemas.skill import Box, Output, Point

__all__ = ["is_right"]

_Found = TypeVar("_Found")

_OVERLAP = 0.5
"""Smallest intersection over union at which a box counts as found."""


def is_right(job: DemoJob, output: Output | None) -> bool:
    """Return whether the output is right for the job's picture; a missing output is wrong."""
    if output is None:
        return False
    picture = job.picture
    if output.objects is not None and picture is not None:
        return _all_found(_wanted(job, picture), output.objects, lambda shape, box: _overlaps(shape, box, picture))
    if output.points is not None and picture is not None:
        return _all_found(_wanted(job, picture), output.points, lambda shape, point: _inside(shape, point, picture))
    if output.caption is not None and picture is not None:
        return all(shape.name in output.caption.lower() for shape in picture.shapes)
    return (output.answer or "").strip(" .").lower() == job.truth.lower()


def _wanted(job: DemoJob, picture: Picture) -> list[Shape]:
    return [shape for shape in picture.shapes if shape.name == job.fields["object"]]


def _all_found(wanted: list[Shape], found: Sequence[_Found], fits: Callable[[Shape, _Found], bool]) -> bool:
    """Return whether shapes and finds are equally many, each shape fits a find, and each find a shape."""
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
