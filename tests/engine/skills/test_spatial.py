from worker.engine.inputs import CoordinateInput, SizeInput
from worker.engine.request import (
    BoxFound,
    Detect,
    Finished,
    FinishReason,
    Point,
    PointFound,
    Request,
    Sampling,
    Task,
    Usage,
)
from worker.engine.skills import Advance, Head, Reading, SpatialSkill, start_skill
from worker.model.config import TokenizerConfig

EOS = 0
USAGE = Usage(0, 0, 0, 0.0, 0.0, 0.0)


def skill(task: Task, max_objects: int = 5) -> SpatialSkill:
    started = start_skill(
        Request("a", task, None, Sampling(max_objects=max_objects)),
        ids=TokenizerConfig(),
        tokenizer=None,  # type: ignore[arg-type]
    )
    assert isinstance(started, SpatialSkill)
    return started


def test_a_point_is_x_from_the_hidden_state_of_the_stop_test_and_then_y() -> None:
    point = skill(Point("dog"))
    assert point.heads == Head.TOKEN | Head.COORDINATE
    assert point.greedy and point.suppressed == ()
    assert point.advance(Reading(token=5, coordinate=0.25)) == Advance(inputs=(CoordinateInput(0.25),))
    assert point.heads == Head.COORDINATE
    found = PointFound("a", 0.25, 0.5)
    assert point.advance(Reading(coordinate=0.5)) == Advance((CoordinateInput(0.5),), (found,))
    assert point.heads == Head.TOKEN | Head.COORDINATE
    assert point.advance(Reading(token=EOS, coordinate=0.1)) == Advance(reason=FinishReason.STOP)
    assert point.finish(FinishReason.STOP, USAGE) == [Finished("a", FinishReason.STOP, USAGE, points=(found,))]
    assert point.output_tokens == 2


def test_a_box_is_a_centre_and_a_size_and_may_leave_the_image() -> None:
    detect = skill(Detect("dog"))
    detect.advance(Reading(token=77, coordinate=0.25))
    assert detect.advance(Reading(coordinate=0.5)) == Advance(inputs=(CoordinateInput(0.5),))
    assert detect.heads == Head.SIZE
    box = BoxFound("a", -0.25, 0.25, 0.75, 0.75)
    assert detect.advance(Reading(size=(1.0, 0.5))) == Advance((SizeInput(1.0, 0.5),), (box,))
    assert detect.finish(FinishReason.LENGTH, USAGE) == [Finished("a", FinishReason.LENGTH, USAGE, boxes=(box,))]
    assert detect.output_tokens == 3


def test_box_arithmetic_is_in_double() -> None:
    detect = skill(Detect("dog"))
    width = 0.031356047838926315  # a float32
    detect.advance(Reading(token=1, coordinate=0.1))
    detect.advance(Reading(coordinate=0.2))
    (box,) = detect.advance(Reading(size=(width, width))).outputs
    assert isinstance(box, BoxFound)
    assert box.x_min == 0.1 - width / 2 and box.y_max == 0.2 + width / 2


def test_nothing_is_found_when_the_first_token_ends_it() -> None:
    detect = skill(Detect("dog"))
    assert detect.advance(Reading(token=EOS, coordinate=0.1)).reason is FinishReason.STOP
    assert detect.finish(FinishReason.STOP, USAGE) == [Finished("a", FinishReason.STOP, USAGE)]


def test_the_limit_of_objects_ends_it_without_another_step() -> None:
    point = skill(Point("dog"), max_objects=1)
    point.advance(Reading(token=5, coordinate=0.25))
    last = point.advance(Reading(coordinate=0.5))
    assert last == Advance(outputs=(PointFound("a", 0.25, 0.5),), reason=FinishReason.LENGTH)
