from dataclasses import replace

import pytest

from stoop_worker.engine.inputs import Input, TokenInput
from stoop_worker.engine.request import Caption, Detect, Gaze, Point, Query, Task
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.prompt import build_prompt
from stoop_worker.models.moondream.values import coordinate_input, size_input

IDS = TokenizerConfig()


class CharacterTokenizer:
    def tokenize(self, text: str) -> list[int]:
        return [1000 + ord(letter) for letter in text]


def build(task: Task, *, has_image: bool = True, ids: TokenizerConfig = IDS) -> list[Input]:
    return build_prompt(task, has_image=has_image, ids=ids, tokenizer=CharacterTokenizer())  # type: ignore[arg-type]


def tokens(*ids: int) -> list[Input]:
    return [TokenInput(token) for token in ids]


A, SPACE = 1000 + ord("a"), 1000 + ord(" ")


@pytest.mark.parametrize(
    ("task", "ids"),
    [
        (Caption("short"), (1, 32708, 2, 12492, 3)),
        (Caption("normal"), (1, 32708, 2, 6382, 3)),
        (Query("a"), (1, 15381, 2, A, 3, 3)),
        (Query("a", reasoning=True), (1, 15381, 2, A, 3, 4)),
        (Detect("a"), (1, 7235, 476, 2, SPACE, A, 3)),
        (Point("a"), (1, 2581, 2, SPACE, A, 3)),
    ],
)
def test_prompts_follow_the_templates(task: Task, ids: tuple[int, ...]) -> None:
    assert build(task) == tokens(*ids)


def test_without_an_image_the_prompt_starts_with_bos() -> None:
    assert build(Query("a"), has_image=False) == tokens(0, 1, 15381, 2, A, 3, 3)


def test_the_second_suffix_can_be_switched_off() -> None:
    ids = replace(IDS, query_double_suffix=False)
    assert build(Query("a"), ids=ids) == tokens(1, 15381, 2, A, 3)
    assert build(Query("a", reasoning=True), ids=ids) == tokens(1, 15381, 2, A, 3, 4)


def test_spatial_references_stand_before_the_question_in_their_order() -> None:
    task = Query("a", spatial_refs=((0.25, 0.5, 0.75, 1.0), (0.1, 0.2)))
    assert build(task) == [
        *tokens(1, 15381, 2),
        coordinate_input(0.5),
        coordinate_input(0.75),
        size_input(0.5, 0.5),
        coordinate_input(0.1),
        coordinate_input(0.2),
        *tokens(A, 3, 3),
    ]


def test_the_spatial_references_of_a_point_stand_before_its_object() -> None:
    task = Point("a", spatial_refs=((0.1, 0.2), (0.25, 0.5, 0.75, 1.0)))
    places = [*map(coordinate_input, (0.1, 0.2, 0.5, 0.75)), size_input(0.5, 0.5)]
    assert build(task) == [*tokens(1, 2581, 2), *places, *letters(" a"), *tokens(3)]


def letters(text: str) -> list[Input]:
    return tokens(*CharacterTokenizer().tokenize(text))


def test_a_gaze_is_asked_for_in_the_words_of_moondream_2_or_as_a_point_of_moondream_3() -> None:
    eye = [coordinate_input(0.25), coordinate_input(0.5)]
    assert build(Gaze((0.25, 0.5))) == [*letters("\n\nPoint:"), *eye, *letters(" gaze\n\n")]
    point = replace(IDS, gaze_as_point=True)
    assert build(Gaze((0.25, 0.5)), ids=point) == [*tokens(1, 2581, 2), *eye, *letters(" gaze"), *tokens(3)]


def test_moondream_3_thinks_without_the_suffix() -> None:
    ids = replace(IDS, query_double_suffix=False, reasoning_after_suffix=False)
    assert build(Query("a"), ids=ids) == tokens(1, 15381, 2, A, 3)
    assert build(Query("a", reasoning=True), ids=ids) == tokens(1, 15381, 2, A, 4)


@pytest.mark.parametrize("reasons", [False, True])
def test_a_query_without_reasoning_set_uses_its_models_default(reasons: bool) -> None:
    ids = replace(IDS, reasoning=reasons)
    assert build(Query("a"), ids=ids) == build(Query("a", reasoning=reasons), ids=ids)
    assert build(Query("a", reasoning=True), ids=ids) != build(Query("a", reasoning=False), ids=ids)
