import pytest

from stoop.demo.burst import DemoJob
from stoop.demo.check import is_right
from stoop.demo.pictures import Picture, Shape
from stoop_schemas.skill import Box, Output, Point

PICTURE = Picture(
    "p",
    b"",
    (200, 100),
    (
        Shape("red", "circle", (20, 10, 60, 50)),
        Shape("red", "circle", (120, 10, 160, 50)),
        Shape("blue", "square", (20, 60, 50, 90)),
    ),
)
DETECT = DemoJob("detect", PICTURE, {"object": "red circle"})
POINT = DemoJob("point", PICTURE, {"object": "red circle"})
LEFT, RIGHT = Box(0.1, 0.1, 0.3, 0.5), Box(0.6, 0.1, 0.8, 0.5)


@pytest.mark.parametrize(
    ("boxes", "right"),
    [
        ([LEFT, RIGHT], True),
        ([RIGHT, LEFT], True),
        ([LEFT], False),
        ([LEFT, LEFT], False),
        ([LEFT, RIGHT, RIGHT], False),
        ([LEFT, Box(0.6, 0.1, 0.65, 0.2)], False),
        ([], False),
    ],
)
def test_each_shape_needs_its_own_box(boxes: list[Box], right: bool) -> None:
    assert is_right(DETECT, Output(objects=boxes)) is right


@pytest.mark.parametrize(
    ("points", "right"),
    [
        ([Point(0.2, 0.3), Point(0.7, 0.3)], True),
        ([Point(0.2, 0.3)], False),
        ([Point(0.2, 0.3), Point(0.9, 0.9)], False),
    ],
)
def test_points_lie_in_their_shapes(points: list[Point], right: bool) -> None:
    assert is_right(POINT, Output(points=points)) is right


def test_a_caption_names_everything() -> None:
    demo_job = DemoJob("caption", PICTURE)
    assert is_right(demo_job, Output(caption="Two red circles and a blue square."))
    assert not is_right(demo_job, Output(caption="Two red circles."))


def test_an_answer_is_compared_as_a_word() -> None:
    demo_job = DemoJob("query", PICTURE, truth="3")
    assert is_right(demo_job, Output(answer="3."))
    assert not is_right(demo_job, Output(answer="13"))
    assert not is_right(demo_job, None)
