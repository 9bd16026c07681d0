"""The engine against the naive loop: whatever runs beside a request, it gets the answer it would get alone."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import (
    Aborted,
    BoxFound,
    Caption,
    Detect,
    Finished,
    FinishReason,
    Gaze,
    Output,
    Point,
    PointFound,
    Query,
    ReasoningDelta,
    Refusal,
    Refused,
    Request,
    Sampling,
    Task,
    TextDelta,
)
from stoop_worker.images import Image, cut
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine import naive
from tests.engine.audit import audit
from tests.engine.micro import (
    BRIEF,
    GROUNDED,
    LIVELY,
    MICRO,
    SILENT,
    crops_of,
    drain,
    ending,
    media_of,
    micro_moondream,
    small_engine,
)
from tests.support.tiny_model import tiny_moondream

GREEDY = Sampling(temperature=0.0, max_tokens=8, max_objects=3, seed=0)
IMAGE_TASKS: list[Task] = [
    Query("What colour?"),
    Query("What colour is it?"),
    Query("What colour?", reasoning=True),
    Query("This one?", spatial_refs=((0.25, 0.5), (0.1, 0.2, 0.7, 0.9))),
    Query("This one?", reasoning=True, spatial_refs=((0.1, 0.2, 0.7, 0.9),)),
    Caption("short"),
    Caption("normal"),
    Detect("circle"),
    Detect("red circle"),
    Point("circle"),
    Point("circle", ((0.25, 0.5), (0.1, 0.2, 0.7, 0.9))),
    Gaze((0.25, 0.75)),
]
TEXT_TASKS: list[Task] = [Query("What colour?"), Query("How many are there?"), Query("Why?", reasoning=True)]
SAMPLINGS = [
    GREEDY,
    Sampling(temperature=0.0, max_tokens=1, max_objects=1, seed=1),
    Sampling(temperature=1.0, top_p=0.95, max_tokens=20, max_objects=2, seed=2),
    Sampling(temperature=0.7, top_p=0.5, max_tokens=5, max_objects=6, seed=3),
]

Spec = tuple[Task, int | None, Sampling]
with_image = st.tuples(st.sampled_from(IMAGE_TASKS), st.sampled_from([0, 1, 2]), st.sampled_from(SAMPLINGS))
without_image = st.tuples(st.sampled_from(TEXT_TASKS), st.none(), st.sampled_from(SAMPLINGS))
specs = st.one_of(with_image, with_image, without_image)
models = st.sampled_from([LIVELY, GROUNDED, BRIEF, SILENT])


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    page_size = draw(st.sampled_from([2, 4, 8, 16, 32]))
    least = MICRO.text.max_context // page_size + 1
    max_batch = draw(st.integers(1, 5))
    return EngineConfig(
        page_size=page_size,
        pages=draw(st.sampled_from([least, least + 1, least + 96 // page_size, 4 * least])),
        max_batch=max_batch,
        token_budget=draw(st.sampled_from([max_batch + 1, 20, 40, 200])),
        encode_budget=draw(st.sampled_from([1, 4, 16])),
        prefix_cache=draw(st.booleans()),
        lookahead=draw(st.booleans()),
    )


def request(name: str, spec: Spec) -> Request:
    task, image, sampling = spec
    # the third image is cut into several crops, the others are one crop each
    size = 20 if image == 2 else 8
    return Request(name, task, media_of(None if image is None else crops_of(image, size, size)), sampling)


@cache
def expected(biases: tuple[tuple[int, float], ...], spec: Spec) -> naive.Answer:
    return naive.answer(micro_moondream(biases), request("naive", spec))


def assert_equal(outputs: list[Output], answer: naive.Answer) -> None:
    finished = outputs[-1]
    assert isinstance(finished, Finished)
    assert finished.text == answer.text
    assert finished.reasoning == answer.reasoning
    assert [(span.start, span.end, list(span.points)) for span in finished.grounding] == answer.grounding
    assert [(box.x_min, box.y_min, box.x_max, box.y_max) for box in finished.boxes] == answer.boxes
    assert [(point.x, point.y) for point in finished.points] == answer.points
    assert finished.reason is answer.reason
    assert finished.usage.input_tokens == answer.input_tokens
    assert_streamed(outputs, finished)


def assert_streamed(outputs: list[Output], finished: Finished) -> None:
    """Assert that the streamed pieces add up to the last output."""
    assert sum(isinstance(output, Finished | Refused | Aborted) for output in outputs) == 1
    assert "".join(output.text for output in outputs if isinstance(output, TextDelta)) == finished.text
    thoughts = "".join(output.text for output in outputs if isinstance(output, ReasoningDelta))
    assert thoughts == (finished.reasoning or "")
    assert all(output.text for output in outputs if isinstance(output, TextDelta | ReasoningDelta))
    assert tuple(output for output in outputs if isinstance(output, BoxFound)) == finished.boxes
    assert tuple(output for output in outputs if isinstance(output, PointFound)) == finished.points


@settings(max_examples=60)
@given(config=configs(), biases=models, arrivals=st.lists(st.tuples(st.integers(0, 8), specs), min_size=1, max_size=7))
def test_a_request_gets_its_own_answer_in_any_schedule(
    config: EngineConfig, biases: tuple[tuple[int, float], ...], arrivals: list[tuple[int, Spec]]
) -> None:
    engine = Engine(MoondreamFamily(micro_moondream(biases)), config)
    received = play(engine, arrivals, aborts={})
    for index, (_, spec) in enumerate(arrivals):
        assert_equal(received[str(index)], expected(biases, spec))


@settings(max_examples=40)
@given(
    config=configs(),
    arrivals=st.lists(st.tuples(st.integers(0, 8), specs), min_size=1, max_size=6),
    aborts=st.dictionaries(st.integers(0, 5), st.integers(0, 20), max_size=4),
)
def test_aborts_leave_the_others_and_the_pool_whole(
    config: EngineConfig, arrivals: list[tuple[int, Spec]], aborts: dict[int, int]
) -> None:
    engine = Engine(MoondreamFamily(micro_moondream()), config)
    received = play(engine, arrivals, aborts)
    for index, (_, spec) in enumerate(arrivals):
        last = ending(received, str(index))
        if isinstance(last, Finished):
            assert_equal(received[str(index)], expected(LIVELY, spec))
        else:
            assert last == Aborted(str(index)) and index in aborts


def play(engine: Engine, arrivals: list[tuple[int, Spec]], aborts: dict[int, int]) -> dict[str, list[Output]]:
    """Submit and abort at the given steps; run until all have ended."""
    received: dict[str, list[Output]] = {str(index): [] for index in range(len(arrivals))}
    for step in range(5000):
        for index, (at, spec) in enumerate(arrivals):
            if at == step:
                engine.submit(request(str(index), spec))
        for index, at in aborts.items():
            if at == step:
                engine.abort(str(index))
        for output in engine.step():
            received[output.id].append(output)
        audit(engine._scheduler.pool)
        if engine.idle and step > 20:
            break
    assert engine.idle
    engine.check()
    return received


@pytest.mark.parametrize("task", [Query("what?", reasoning=True), Caption("long"), Detect("a cross"), Point("a ring")])
def test_the_released_crop_sizes_answer_as_the_naive_loop(task: Task) -> None:
    model = tiny_moondream(torch.float64)
    pixels = np.random.default_rng(0).integers(0, 256, (600, 850, 3), dtype=np.uint8)
    crops = cut(Image.of(pixels), model.config.vision.geometry)
    asked = Request("a", task, (crops,), Sampling(temperature=0, max_tokens=4, max_objects=2, seed=1))
    received = drain(Engine(MoondreamFamily(model), EngineConfig(token_budget=733, max_batch=2)), [asked])
    assert_equal(received["a"], naive.answer(model, asked))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_other_dtypes_run_every_skill(dtype: torch.dtype) -> None:
    requests = [request(str(index), (task, 0, GREEDY)) for index, task in enumerate(IMAGE_TASKS)]
    received = drain(small_engine(micro_moondream(dtype=dtype)), requests)
    assert all(isinstance(ending(received, asked.id), Finished) for asked in requests)


def test_a_request_that_does_not_stream_has_its_last_output_alone() -> None:
    streaming = [Request(str(number), task, media_of(crops_of(1)), GREEDY) for number, task in enumerate(IMAGE_TASKS)]
    expected = drain(small_engine(), streaming)
    found = drain(small_engine(), [replace(request, stream=False) for request in streaming])
    for request in streaming:
        own = found[request.id]
        assert len(own) == 1
        last = ending(expected, request.id)
        assert isinstance(own[0], Finished) and isinstance(last, Finished)
        assert (own[0].text, own[0].points, own[0].boxes) == (last.text, last.points, last.boxes)


def test_requests_for_one_image_encode_it_once() -> None:
    engine = small_engine()
    received = drain(engine, [request(str(index), (Query(f"{index}?"), 0, GREEDY)) for index in range(3)])
    assert engine.stats.totals.images_encoded == 1
    cached = [ending(received, str(index)).usage.cached_tokens for index in range(3)]
    # the template of the prompt is shared too
    assert cached == [0, 29, 29]
    assert engine.stats.totals.image_hits == 2
    totals = engine.stats.totals
    timed = (totals.encode_step_seconds, totals.prefill_step_seconds, totals.decode_step_seconds)
    assert sum(sum(each.counts) for each in timed) == sum(totals.batch_sequences.counts) == totals.steps
    assert sum(totals.encode_step_seconds.counts) == 1, "one step encoded the image"
    assert sum(totals.decode_step_seconds.counts) > 0


def test_without_the_cache_every_image_is_encoded() -> None:
    engine = small_engine(prefix_cache=False)
    received = drain(engine, [request(str(index), (Caption("short"), 0, GREEDY)) for index in range(3)])
    assert engine.stats.totals.images_encoded == 3
    assert ending(received, "2").usage.cached_tokens == 0
    assert engine.stats.pages_idle == 0


def test_a_repeated_prompt_computes_its_last_position_only() -> None:
    engine = small_engine()
    spec: Spec = (Query("What colour?"), 0, GREEDY)
    drain(engine, [request("a", spec)])
    computed = engine.stats.totals.prefill_tokens
    received = drain(engine, [request("b", spec)])
    usage = ending(received, "b").usage
    assert usage.cached_tokens == usage.input_tokens - 1
    assert engine.stats.totals.prefill_tokens == computed + 1
    assert_equal(received["b"], expected(LIVELY, spec))


def test_a_caption_reports_the_image_and_its_template_as_input() -> None:
    usage = ending(drain(small_engine(), [request("a", (Caption("normal"), 0, GREEDY))]), "a").usage
    assert usage.input_tokens == MICRO.text.prefix_attn + 5
    assert usage.output_tokens == len(expected(LIVELY, (Caption("normal"), 0, GREEDY)).tokens)


def test_times_come_from_the_clock() -> None:
    ticks = iter(range(1000))
    engine = Engine(MoondreamFamily(micro_moondream()), EngineConfig(page_size=4), clock=lambda: float(next(ticks)))
    usage = ending(drain(engine, [request("a", (Caption("normal"), 0, GREEDY))]), "a").usage
    assert 0 < usage.prefill_time_ms < usage.ttft_ms
    assert usage.decode_time_ms > 0


def test_the_context_cuts_an_answer_short() -> None:
    spec: Spec = (Query("What?"), 0, Sampling(temperature=1.0, top_p=1.0, max_tokens=500, seed=9))
    model = micro_moondream(((0, -100.0),))
    received = drain(small_engine(model), [request("a", spec)])
    last = ending(received, "a")
    assert last.reason is FinishReason.LENGTH
    assert last.usage.input_tokens + last.usage.output_tokens == MICRO.text.max_context + 1
    assert_equal(received["a"], naive.answer(model, request("naive", spec)))


def test_the_context_cuts_reasoning_and_boxes_short() -> None:
    model = micro_moondream(((0, -100.0), (3, -100.0), (5, 6.0)))
    endless = Sampling(temperature=1.0, top_p=1.0, max_tokens=500, max_objects=500, seed=9)
    for task in (Query("What?", reasoning=True), Detect("a"), Point("a")):
        received = drain(small_engine(model), [request("a", (task, 0, endless))])
        assert ending(received, "a").reason is FinishReason.LENGTH
        assert_equal(received["a"], naive.answer(model, request("naive", (task, 0, endless))))


def test_a_prompt_that_cannot_fit_is_refused_alone() -> None:
    engine = small_engine()
    spec: Spec = (Caption("short"), 0, GREEDY)
    received = drain(engine, [request("a", spec), request("b", (Query("why " * 100), 0, GREEDY))])
    last = ending(received, "b")
    assert isinstance(last, Refused) and last.refusal is Refusal.CONTEXT_OVERFLOW
    assert_equal(received["a"], expected(LIVELY, spec))
    assert engine.stats.totals.refused == 1


def test_bad_input_is_refused_and_its_id_may_come_again() -> None:
    engine = small_engine()
    received = drain(engine, [Request("a", Caption("short"))])
    assert received["a"] == [Refused("a", Refusal.INVALID_ARGUMENT, "caption needs an image")]
    assert isinstance(ending(drain(engine, [request("a", (Caption("short"), 0, GREEDY))]), "a"), Finished)


def test_an_id_in_flight_cannot_be_submitted_again() -> None:
    engine = small_engine()
    engine.submit(request("a", (Caption("short"), 0, GREEDY)))
    with pytest.raises(ValueError, match="in flight"):
        engine.submit(request("a", (Caption("short"), 0, GREEDY)))


def test_objects_are_found_greedily_at_any_temperature() -> None:
    model = micro_moondream(SILENT)
    for seed in range(5):
        hot = Sampling(temperature=100.0, top_p=1.0, seed=seed)
        received = drain(small_engine(model), [request("a", (Point("circle"), 0, hot))])
        assert_equal(received["a"], naive.answer(model, request("naive", (Point("circle"), 0, hot))))
        assert ending(received, "a").reason is FinishReason.STOP


def test_no_seed_draws_one() -> None:
    hot = Sampling(temperature=5.0, top_p=1.0, max_tokens=20)
    received = drain(small_engine(max_batch=8), [request(str(i), (Query("What?"), None, hot)) for i in range(6)])
    assert len({ending(received, str(i)).text for i in range(6)}) > 1


def test_every_branch_of_the_rules_was_met() -> None:
    """The models and requests above prove nothing unless they meet every branch."""
    every = [
        (task, expected(biases, (task, image, sampling)))
        for biases in (LIVELY, GROUNDED, BRIEF, SILENT)
        for task in IMAGE_TASKS
        for image in (0, 1)
        for sampling in SAMPLINGS
    ]
    thoughts = [answer for task, answer in every if isinstance(task, Query) and task.reasoning]
    assert {3, 5, 7, 9} <= {token for answer in thoughts for token in answer.tokens}
    assert any(answer.grounding for answer in thoughts)
    assert any(answer.tokens[0] == 5 for answer in thoughts)
    for kind in (Query, Caption, Detect, Point):
        assert {answer.reason for task, answer in every if isinstance(task, kind)} == set(FinishReason)
    assert any((answer.boxes or answer.points) and answer.reason is FinishReason.STOP for _, answer in every)
    assert any(isinstance(task, Detect | Point) and not (answer.boxes or answer.points) for task, answer in every)
