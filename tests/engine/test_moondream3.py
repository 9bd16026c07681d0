"""Moondream 3 in the engine: however its prompt is cut, cached and batched, a request gets its own answer."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Finished, FinishReason, Output, Point, Query, Request, Task
from stoop_worker.models.moondream.family import MoondreamFamily
from tests.engine import naive
from tests.engine.micro import BRIEF, GROUNDED, LIVELY, MICRO3, drain, ending, micro_moondream3, small_engine
from tests.engine.test_engine import (
    GREEDY,
    IMAGE_TASKS,
    SAMPLINGS,
    TEXT_TASKS,
    Spec,
    assert_equal,
    configs,
    play,
    request,
    specs,
)

Biases = tuple[tuple[int, float], ...]
MODELS = [LIVELY, GROUNDED, BRIEF]


@cache
def expected(biases: Biases, spec: Spec) -> naive.Answer:
    return naive.answer(micro_moondream3(biases), request("naive", spec))


@settings(max_examples=40)
@given(
    config=configs(),
    biases=st.sampled_from(MODELS),
    arrivals=st.lists(st.tuples(st.integers(0, 8), specs), min_size=1, max_size=6),
)
def test_a_request_gets_its_own_answer_in_any_schedule(
    config: EngineConfig, biases: Biases, arrivals: list[tuple[int, Spec]]
) -> None:
    engine = Engine(MoondreamFamily(micro_moondream3(biases)), config)
    outputs = play(engine, arrivals, aborts={})
    for index, (_, spec) in enumerate(arrivals):
        assert_equal(outputs[str(index)], expected(biases, spec))


@settings(max_examples=10)
@given(config=configs(), arrivals=st.lists(st.tuples(st.integers(0, 8), specs), min_size=1, max_size=4))
def test_merged_decodes_answer_alike(config: EngineConfig, arrivals: list[tuple[int, Spec]]) -> None:
    # a model of its own, because merging changes the layout of its weights
    engine = Engine(MoondreamFamily(micro_moondream3.__wrapped__(GROUNDED), fused=True), config)
    outputs = play(engine, arrivals, aborts={})
    for index, (_, spec) in enumerate(arrivals):
        assert_equal(outputs[str(index)], expected(GROUNDED, spec))


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_decode_joins_the_prefill_of_an_image(lookahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    family = MoondreamFamily(micro_moondream3(GROUNDED))
    engine = Engine(family, EngineConfig(page_size=4, max_batch=4, token_budget=64, lookahead=lookahead))
    steps: list[str] = []
    noted = {"encode": (family, "image "), "step": (family, "decode "), "schedule": (engine._scheduler, "| ")}
    for name, (owner, note) in noted.items():
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given, real=real, note=note: (steps.append(note), real(*given))[1])
    text, image = (Query("Why?", reasoning=False), None, GREEDY), (Query("Why?", reasoning=False), 0, GREEDY)
    outputs = play(engine, [(0, text), (3, image)], aborts={})
    before, _, after = "".join(steps).partition("image ")
    assert before.endswith("decode | ") and after.startswith("| decode ")  # none beside the image
    assert_equal(outputs["0"], expected(GROUNDED, text))
    assert_equal(outputs["1"], expected(GROUNDED, image))


def ask(biases: Biases, spec: Spec) -> list[Output]:
    engine = small_engine(micro_moondream3(biases))
    return drain(engine, [request("a", spec)])["a"]


@pytest.mark.parametrize("task", [Query("What colour?"), Query("What colour?", reasoning=True), Caption("short")])
def test_a_prompt_ends_by_the_rules_of_moondream_3(task: Task) -> None:
    finished = ask(LIVELY, (task, 0, GREEDY))[-1]
    assert isinstance(finished, Finished)
    question = len(micro_moondream3().tokenizer.tokenize("What colour?"))
    words = 5 if isinstance(task, Caption) else 3 + question + 1
    assert finished.usage.input_tokens == MICRO3.text.prefix_attn + words


def test_the_answer_id_ends_an_answer() -> None:
    silent = ((0, -100.0), (3, 100.0))
    finished = ask(silent, (Query("What?"), 0, GREEDY))[-1]
    assert isinstance(finished, Finished)
    assert (finished.text, finished.reason, finished.usage.output_tokens) == ("", FinishReason.STOP, 0)


@pytest.mark.parametrize("task", [Detect("circle"), Point("circle")])
def test_after_the_first_object_the_coordinate_id_competes_with_the_end_alone(task: Task) -> None:
    # id 30 is the likeliest of all: it starts the first object; then the end is likelier than the coordinate
    endless, ending_soon = (
        ask(((0, of_end), (5, of_coordinate), (30, 300.0)), (task, 0, GREEDY))[-1]
        for of_end, of_coordinate in ((50.0, 150.0), (150.0, 50.0))
    )
    assert isinstance(endless, Finished) and isinstance(ending_soon, Finished)
    assert len(endless.boxes + endless.points) == GREEDY.max_objects and endless.reason is FinishReason.LENGTH
    assert len(ending_soon.boxes + ending_soon.points) == 1 and ending_soon.reason is FinishReason.STOP


def test_every_branch_of_the_rules_was_met() -> None:
    specs: list[Spec] = [
        *((task, image, sampling) for task in IMAGE_TASKS for image in (0, 1) for sampling in SAMPLINGS),
        *((task, None, sampling) for task in TEXT_TASKS for sampling in SAMPLINGS),
    ]
    every = [(spec[0], expected(biases, spec)) for biases in MODELS for spec in specs]
    thoughts = [answer for task, answer in every if isinstance(task, Query) and task.reasoning]
    assert {3, 5, 7} <= {token for answer in thoughts for token in answer.tokens}
    assert any(answer.grounding for answer in thoughts)
    for kind in (Query, Caption, Detect, Point):
        assert {answer.reason for task, answer in every if isinstance(task, kind)} == set(FinishReason)
    assert any(len(answer.boxes) > 1 for _, answer in every)


def test_reasoning_in_text_alone() -> None:
    outputs = drain(small_engine(micro_moondream3(GROUNDED)), [Request("a", Query("Why?", reasoning=True))])
    assert isinstance(ending(outputs, "a"), Finished)
