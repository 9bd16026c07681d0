import pytest

from stoop_worker.engine.request import (
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
from stoop_worker.engine.skill import Advance, Head, HeadValues
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.skills import SpatialSkill, start_skill
from stoop_worker.models.moondream.values import coordinate_input, size_input

EOS = 0
USAGE = Usage(0, 0, 0, 0.0, 0.0, 0.0)


def skill(task: Task, max_objects: int = 5, ids: TokenizerConfig | None = None) -> SpatialSkill:
    started = start_skill(
        Request("a", task, (), Sampling(max_objects=max_objects)),
        ids=ids or TokenizerConfig(),
        tokenizer=None,  # type: ignore[arg-type]
    )
    assert isinstance(started, SpatialSkill)
    return started


def test_a_point_is_x_from_the_hidden_state_of_the_stop_test_and_then_y() -> None:
    point = skill(Point("dog"))
    assert point.heads == Head.TOKEN | Head.VALUES
    assert point.greedy and point.suppressed == ()
    assert point.advance(HeadValues(5, (0.25, 0.0, 0.0))) == Advance(inputs=(coordinate_input(0.25),))
    assert point.heads == Head.VALUES
    found = PointFound("a", 0.25, 0.5)
    assert point.advance(HeadValues(values=(0.5, 0.0, 0.0))) == Advance((coordinate_input(0.5),), (found,))
    assert point.heads == Head.TOKEN | Head.VALUES
    assert point.advance(HeadValues(EOS, (0.1, 0.0, 0.0))) == Advance(reason=FinishReason.STOP)
    assert point.finish(FinishReason.STOP, USAGE) == [Finished("a", FinishReason.STOP, USAGE, points=(found,))]
    assert point.output_tokens == 2


def test_a_box_is_a_centre_and_a_size_and_may_leave_the_image() -> None:
    detect = skill(Detect("dog"))
    detect.advance(HeadValues(77, (0.25, 0.0, 0.0)))
    assert detect.advance(HeadValues(values=(0.5, 0.0, 0.0))) == Advance(inputs=(coordinate_input(0.5),))
    assert detect.heads == Head.VALUES
    box = BoxFound("a", -0.25, 0.25, 0.75, 0.75)
    assert detect.advance(HeadValues(values=(0.0, 1.0, 0.5))) == Advance((size_input(1.0, 0.5),), (box,))
    assert detect.finish(FinishReason.LENGTH, USAGE) == [Finished("a", FinishReason.LENGTH, USAGE, boxes=(box,))]
    assert detect.output_tokens == 3


def test_box_arithmetic_is_in_double() -> None:
    detect = skill(Detect("dog"))
    width = 0.031356047838926315  # a float32
    detect.advance(HeadValues(1, (0.1, 0.0, 0.0)))
    detect.advance(HeadValues(values=(0.2, 0.0, 0.0)))
    (box,) = detect.advance(HeadValues(values=(0.0, width, width))).outputs
    assert isinstance(box, BoxFound)
    assert box.x_min == 0.1 - width / 2 and box.y_max == 0.2 + width / 2


def test_nothing_is_found_when_the_first_token_ends_it() -> None:
    detect = skill(Detect("dog"))
    assert detect.advance(HeadValues(EOS, (0.1, 0.0, 0.0))).reason is FinishReason.STOP
    assert detect.finish(FinishReason.STOP, USAGE) == [Finished("a", FinishReason.STOP, USAGE)]


OTHER = 77
LIKELIER, EVEN, LESS_LIKELY = 0.5, 0.0, -0.5
"""How far the coordinate id is above the end."""


@pytest.mark.parametrize(
    ("rule", "token", "above_end", "first_stops", "later_stops"),
    [
        ("token", EOS, LIKELIER, True, True),
        ("token", OTHER, LESS_LIKELY, False, False),
        ("pair_after_first", EOS, LIKELIER, True, False),
        ("pair_after_first", OTHER, LESS_LIKELY, False, True),
        ("pair", EOS, LIKELIER, False, False),
        ("pair", OTHER, LESS_LIKELY, True, True),
        ("pair", EOS, EVEN, False, False),
    ],
)
def test_the_stop_rule_decides_whether_there_is_one_more_object(
    rule: str, token: int, above_end: float, first_stops: bool, later_stops: bool
) -> None:
    def stops(after: int) -> bool:
        point = skill(Point("dog"), ids=TokenizerConfig(stop_rule=rule))
        for _ in range(after):
            point.advance(HeadValues(5, (0.25, 0.0, 0.0, 1.0)))
            point.advance(HeadValues(values=(0.5, 0.0, 0.0, 0.0)))
        return point.advance(HeadValues(token, (0.1, 0.0, 0.0, above_end))).reason is FinishReason.STOP

    assert (stops(after=0), stops(after=1)) == (first_stops, later_stops)


def test_the_limit_of_objects_ends_it_without_another_step() -> None:
    point = skill(Point("dog"), max_objects=1)
    point.advance(HeadValues(5, (0.25, 0.0, 0.0)))
    last = point.advance(HeadValues(values=(0.5, 0.0, 0.0)))
    assert last == Advance(outputs=(PointFound("a", 0.25, 0.5),), reason=FinishReason.LENGTH)
