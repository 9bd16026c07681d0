"""Turns tasks into prompts: the inputs that follow the image prefix."""

from stoop_worker.engine.inputs import Input, token_input, token_inputs
from stoop_worker.engine.request import Caption, Detect, Gaze, Point, Query, SpatialRef, Task
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config_parts import TokenizerConfig
from stoop_worker.models.moondream.values import coordinate_input, size_input

__all__ = ["build_prompt"]


def build_prompt(task: Task, *, has_image: bool, ids: TokenizerConfig, tokenizer: Tokenizer) -> list[Input]:
    """Lay a task out by the model's templates; without an image the first input is BOS."""
    start: list[Input] = [] if has_image else [token_input(ids.bos_id)]
    return start + _build(task, ids, tokenizer)


def _build(task: Task, ids: TokenizerConfig, tokenizer: Tokenizer) -> list[Input]:
    templates = ids.templates
    if isinstance(task, Caption):
        return _tokens(templates.caption[task.length])
    if isinstance(task, Query):
        question = _tokens(tokenizer.tokenize(task.question))
        return _tokens(templates.query.prefix) + _references(task) + question + _tokens(_query_end(task, ids))
    if isinstance(task, Gaze):
        return _gaze(task, ids, tokenizer)
    assert isinstance(task, Detect | Point), "a chat is a query by now, and other tasks were refused"
    affixes = templates.detect if isinstance(task, Detect) else templates.point
    # the object's name follows the template as a word, the question does not
    words = _tokens([*tokenizer.tokenize(f" {task.object}"), *affixes.suffix])
    return _tokens(affixes.prefix) + (_references(task) if isinstance(task, Point) else []) + words


def _gaze(task: Gaze, ids: TokenizerConfig, tokenizer: Tokenizer) -> list[Input]:
    eye = _reference(task.eye)
    if ids.gaze_as_point:
        point = ids.templates.point
        return [*_tokens(point.prefix), *eye, *_tokens(tokenizer.tokenize(" gaze")), *_tokens(point.suffix)]
    # the words of Moondream 2's reference
    before, after = (_tokens(tokenizer.tokenize(words)) for words in ("\n\nPoint:", " gaze\n\n"))
    return [*before, *eye, *after]


def _query_end(task: Query, ids: TokenizerConfig) -> tuple[int, ...]:
    suffix = ids.templates.query.suffix
    if ids.reasons(task):
        return (*suffix, ids.thinking_id) if ids.reasoning_after_suffix else (ids.thinking_id,)
    return suffix + suffix if ids.query_double_suffix else suffix


def _references(task: Query | Point) -> list[Input]:
    return [fed for ref in task.spatial_refs for fed in _reference(ref)]


def _reference(ref: SpatialRef) -> list[Input]:
    if len(ref) == 2:
        return [coordinate_input(ref[0]), coordinate_input(ref[1])]
    x_min, y_min, x_max, y_max = ref
    return [
        coordinate_input((x_min + x_max) / 2),
        coordinate_input((y_min + y_max) / 2),
        size_input(x_max - x_min, y_max - y_min),
    ]


def _tokens(ids: list[int] | tuple[int, ...]) -> list[Input]:
    return token_inputs(ids)
