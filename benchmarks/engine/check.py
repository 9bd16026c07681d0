"""Checks answers before anything is timed: compares each choice of the engine with the logits of a float32 model.

The plain model reads the engine's own answer. At every step, the *regret* of a choice is the distance of its logit from
the best one, in standard deviations of the logits there. An exact engine has no regret, rounding causes little, and an
engine that attends to the wrong positions chooses as if at random, 3 to 4 from the best.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp2, log2
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.engine.full_size import word_ids
from benchmarks.engine.image_processes import prepare
from benchmarks.engine.photo_requests import to_request
from benchmarks.engine.photos import Photos
from benchmarks.engine.plain_model import PlainModel
from benchmarks.engine.workloads import Ask
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Detect, Finished, Query
from stoop_worker.images import Picture
from stoop_worker.models.moondream.model import Moondream

__all__ = ["BOUNDS", "MIXED_BOUNDS", "Checked", "WrongAnswers", "check_engine"]

_TOKENS, _OBJECTS = 16, 4  # of each checked answer, however long it is when timed

BOUNDS: Final = {"float32": (0.001, 0.01), "bfloat16": (0.004, 0.2), "fp8": (0.12, 0.9)}
"""Upper bounds of the mean and the worst regret. At full size, bfloat16 alone causes 0.0007 and 0.035."""

MIXED_BOUNDS: Final = {"float32": (0.001, 0.01), "bfloat16": (0.02, 0.9), "fp8": (0.12, 0.9)}
"""The bounds for a mixture of experts. Where two experts' logits nearly tie, rounding picks another one, and the whole
output of the token moves: over four seeds of the tiny model, bfloat16 causes up to 0.011 and 0.62. Another model's
answers have a mean of 3."""


class WrongAnswers(Exception):
    """The engine's answers differ from the plain model's."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The number of choices, the number that equal the plain model's, and their regrets."""

    answers: int
    choices: int
    same: int
    mean_regret: float
    worst_regret: float


def check_engine(
    engine: Engine,
    model: Moondream,
    asks: Sequence[Ask],
    photos: Photos,
    *,
    precision: str,
    load: Callable[[bytes], Picture] | None = None,
) -> Checked:
    """Ask the engine everything at once; raise `WrongAnswers` if an answer is too short or a bound is exceeded.

    `load` makes the engine's input of a JPEG; by default it is crops.
    """
    asks = [replace(ask, tokens=_TOKENS, objects=_OBJECTS) for ask in asks]
    load = load or partial(prepare, geometry=model.config.vision.geometry, on_device=False)
    answers = _answers(engine, asks, [load(_photo(photos, ask)) for ask in asks])
    plain = PlainModel(model.config, model.weights)
    regrets: list[float] = []
    with torch.inference_mode():
        for ask, finished in zip(asks, answers, strict=True):
            picture = prepare(_photo(photos, ask), model.config.vision.geometry, False)
            start_1C = plain.tokens([model.config.tokenizer.bos_id])
            x_TC = torch.cat((start_1C, plain.image(picture), _prompt(plain, model, ask)))
            regrets += _regrets(plain, ask, finished, x_TC)
    checked = Checked(
        len(asks), len(regrets), sum(regret <= 0 for regret in regrets), sum(regrets) / len(regrets), max(regrets)
    )
    mean, worst = (BOUNDS if model.config.text.moe is None else MIXED_BOUNDS)[precision]
    if not (checked.mean_regret <= mean and checked.worst_regret <= worst):
        raise WrongAnswers(f"{checked}: in {precision} the mean may be {mean}, the worst {worst}")
    return checked


def _photo(photos: Photos, ask: Ask) -> bytes:
    return photos[ask.shape][ask.photo % len(photos[ask.shape])]


def _answers(engine: Engine, asks: Sequence[Ask], pictures: Sequence[Picture]) -> list[Finished]:
    for number, (ask, picture) in enumerate(zip(asks, pictures, strict=True)):
        engine.submit(to_request(f"check-{number}", ask, picture))
    ends: dict[str, Any] = {}
    while not engine.idle:
        ends |= {output.id: output for output in engine.step()}
    found = [ends[f"check-{number}"] for number in range(len(asks))]
    for ask, end in zip(asks, found, strict=True):
        if not isinstance(end, Finished) or not _is_whole(ask, end):
            raise WrongAnswers(f"{ask.task} was answered with {end}")
    return found


def _is_whole(ask: Ask, finished: Finished) -> bool:
    if isinstance(ask.task, Query | Caption):
        return len(word_ids(finished.text)) == ask.tokens
    return len(finished.boxes or finished.points) == ask.objects


def _prompt(plain: PlainModel, model: Moondream, ask: Ask) -> Tensor:
    ids, task = model.config.tokenizer, ask.task
    if isinstance(task, Caption):
        return plain.tokens(list(ids.templates.caption[task.length]))
    if isinstance(task, Query):
        query = ids.templates.query
        ends = query.suffix * (2 if ids.query_double_suffix else 1)
        return plain.tokens([*query.prefix, *model.tokenizer.tokenize(task.question), *ends])
    affixes = ids.templates.detect if isinstance(task, Detect) else ids.templates.point
    return plain.tokens([*affixes.prefix, *model.tokenizer.tokenize(f" {task.object}"), *affixes.suffix])


def _regrets(plain: PlainModel, ask: Ask, finished: Finished, x_TC: Tensor) -> list[float]:
    """Feed the answer after the prompt x_TC, and return the regret of each of its parts."""
    prefix_len, first = plain.config.text.prefix_attn, len(x_TC) - 1
    if isinstance(ask.task, Query | Caption):
        ids = word_ids(finished.text)
        hidden_TC = plain.hidden(torch.cat((x_TC, plain.tokens(ids[:-1]))), prefix_len)[first:]
        return list(_each(plain.token_logits(hidden_TC), ids))
    places = _places(plain, finished)
    fed = torch.cat([x_TC, *(_embedding(plain, values) for _, values in places[:-1])])
    hidden_TC = plain.hidden(fed, prefix_len)[first:]
    found: list[float] = []
    for (bins, _), state_C in zip(places, hidden_TC, strict=True):
        logits = plain.coordinate_logits(state_C[None]) if len(bins) == 1 else plain.size_logits(state_C[None])[0]
        found += _each(logits, bins)
    return found


def _each(logits_TV: Tensor, chosen: Sequence[int]) -> Iterator[float]:
    for logits_V, choice in zip(logits_TV, chosen, strict=True):
        possible_V = logits_V[logits_V > -1e3]  # except tokens that are never chosen
        yield float((logits_V.max() - logits_V[choice]) / possible_V.std())


_Place = tuple[list[int], list[float]]
"""The bins of a coordinate or of a size, and their values."""


def _places(plain: PlainModel, finished: Finished) -> list[_Place]:
    bins, size_bins = plain.config.region.coord_out_dim, plain.config.region.size_out_dim // 2
    found: list[_Place] = []
    for point in finished.points:
        found += [_coordinate(point.x, bins), _coordinate(point.y, bins)]
    for box in finished.boxes:
        found += [_coordinate((box.x_min + box.x_max) / 2, bins), _coordinate((box.y_min + box.y_max) / 2, bins)]
        found.append(_size((box.x_max - box.x_min, box.y_max - box.y_min), size_bins))
    return found


def _coordinate(value: float, bins: int) -> _Place:
    place = round(value * bins)
    return [place], [place / bins]


def _size(size: tuple[float, float], bins: int) -> _Place:
    places = [round((log2(side) + 10) / 10 * (bins - 1)) for side in size]
    return places, [exp2(place / (bins - 1) * 10 - 10) for place in places]


def _embedding(plain: PlainModel, values: list[float]) -> Tensor:
    return plain.coordinate(*values) if len(values) == 1 else plain.size(*values)
