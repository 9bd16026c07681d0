"""A request that is preempted, however often, answers as it does alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Detect, Finished, Point, Query, Request, Sampling, Task
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine import naive
from tests.engine.micro import LIVELY, MICRO, drain, ending, micro_moondream, small_engine
from tests.engine.test_engine import IMAGE_TASKS, Spec, assert_equal, expected, play

# prompts so long that two fill most of the smallest pool, and answers long enough to overfill it; few, for the naive
# loop, which is slow, to meet them all soon
ENDLESS = ((0, -100.0), (3, -100.0), (5, 4.0))
LONG = "red circle, blue one"
LONG_TASKS: list[tuple[Task, int | None]] = [
    (Query(LONG), 0),
    (Query(LONG, reasoning=True), 0),
    (Query(LONG), 1),
    (Detect(LONG), 0),
    (Point(LONG), 1),
    (Query(3 * LONG, reasoning=True), None),
]
GROWING = [
    Sampling(temperature=0.0, max_tokens=16, max_objects=6, seed=4),
    Sampling(temperature=1.0, top_p=0.95, max_tokens=14, max_objects=5, seed=5),
]
long_specs = st.builds(lambda task, sampling: (*task, sampling), st.sampled_from(LONG_TASKS), st.sampled_from(GROWING))


def test_preempted_requests_are_computed_again_and_answer_the_same() -> None:
    long = Sampling(temperature=1.0, top_p=0.95, max_tokens=40, max_objects=10, seed=4)
    wanted: list[Spec] = [(task, index % 3, long) for index, task in enumerate(IMAGE_TASKS)]
    for cached in (True, False):
        engine = small_engine(pages=25, prefix_cache=cached)
        received = play(engine, [(0, spec) for spec in wanted], aborts={})
        assert engine.stats.totals.preemptions > 0
        for index, spec in enumerate(wanted):
            assert_equal(received[str(index)], expected(LIVELY, spec))


@st.composite
def tight_configs(draw: st.DrawFn) -> EngineConfig:
    """Pools in which no two long sequences can grow to their ends."""
    page_size = draw(st.sampled_from([2, 4, 8]))
    return EngineConfig(
        page_size=page_size,
        pages=MICRO.text.max_context // page_size + 1 + draw(st.integers(0, 1)),
        max_batch=draw(st.integers(3, 5)),
        token_budget=draw(st.sampled_from([32, 64, 200])),
        prefix_cache=draw(st.sampled_from([False, False, True])),  # what is shared leaves room
        lookahead=draw(st.booleans()),
    )


def test_preemptions_change_no_answer_in_any_schedule() -> None:
    preemptions: list[int] = []

    @settings(max_examples=50)
    @given(config=tight_configs(), arrivals=st.lists(st.tuples(st.integers(0, 2), long_specs), min_size=3, max_size=3))
    def any_schedule(config: EngineConfig, arrivals: list[tuple[int, Spec]]) -> None:
        engine = Engine(MoondreamFamily(micro_moondream(ENDLESS)), config)
        received = play(engine, arrivals, aborts={})
        preemptions.append(engine.stats.totals.preemptions)
        for index, (_, spec) in enumerate(arrivals):
            assert_equal(received[str(index)], expected(ENDLESS, spec))

    any_schedule()
    assert len(preemptions) >= 50
    assert sum(map(bool, preemptions)) > 0.4 * len(preemptions), "too few schedules preempted anybody"


@pytest.mark.parametrize("last", [10, 11, 12])
def test_a_sequence_preempted_while_its_reasoning_ends_is_read_once(last: int) -> None:
    """Two equal prompts, so that the second's pages are spare, and a third sequence that needs one of them."""
    model = micro_moondream(ENDLESS)
    twice = 2 * LONG
    asked = [
        Request("old", Query("blue one, red circle"), (), Sampling(temperature=0.0, max_tokens=60, seed=1)),
        Request("one", Query(twice, reasoning=True), (), Sampling(temperature=0.0, max_tokens=25, seed=2)),
        Request("two", Query(twice, reasoning=True), (), Sampling(temperature=0.0, max_tokens=last, seed=3)),
    ]
    engine = small_engine(model, lookahead=True, pages=25, token_budget=200)
    received = drain(engine, asked)
    assert engine.stats.totals.preemptions
    for request in asked:
        answer = naive.answer(model, request)
        finished = ending(received, request.id)
        assert isinstance(finished, Finished)
        assert (finished.text, finished.reasoning) == (answer.text, answer.reasoning)
