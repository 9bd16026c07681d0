"""The workloads of encoders: vectors of 64 or 512 texts at once, and of one."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from random import Random
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks.engine.check import Checked, WrongAnswers
from benchmarks.engine.full_size import spell
from benchmarks.families.checkpoint import random_denses
from benchmarks.families.figure import Figure
from benchmarks.families.languages import words_of
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from stoop_worker.engine.batch_engine import TextRequest
from stoop_worker.engine.request import Embed, Request

__all__ = ["WORKLOADS", "check"]

_TOGETHER: Final = 64
_MANY: Final = 512
_ROUNDS: Final = {1: 50, _TOGETHER: 7, _MANY: 7}
_NUMBERS: Final = count()

_BOUNDS: Final = {"float32": 1 - 1e-5, "bfloat16": 0.995, "fp8": 0.95}
"""The least cosine with the vector of transformers."""


def check(opened: Opened) -> Checked:
    """Compare the vectors of texts of different lengths, among others, with those of transformers."""
    requests = [_request(opened, opened.length(tokens)) for tokens in (512, 320, 64, 512)]
    prepared = [opened.engine.prepare(request) for request in requests]
    answers = Stepping(opened.engine).answers(requests)
    regrets: list[float] = []
    for text, answer in zip(prepared, answers, strict=True):
        assert isinstance(text, TextRequest), text
        vector = torch.from_numpy(np.frombuffer(answer.vectors[0], "<f4").copy())
        regrets.append(1 - float(vector @ _reference(opened, text.texts[0].ids).cpu()))
    if max(regrets) > 1 - _BOUNDS[opened.precision]:
        raise WrongAnswers(f"a vector has cosine {1 - max(regrets)} with that of transformers")
    return Checked(len(regrets), len(regrets), len(regrets), sum(regrets) / len(regrets), max(regrets))


def vectors(opened: Opened, count: int, tokens: int) -> list[Figure]:
    """Time texts that are tokenized beforehand."""
    stepping = Stepping(opened.engine)
    length = opened.length(tokens)
    seconds = []
    for _ in range(_ROUNDS[count] + 2):
        records = stepping.together([_request(opened, length) for _ in range(count)])
        seconds.append(max(record.ended for record in records) - records[0].arrived)
    middle = median(seconds[2:])  # the first ones warm it up
    name = f"{'many-' if count == _MANY else ''}texts-{tokens}"
    return [Figure(name, count, count * length / middle, "tok/s", 1e3 * middle, {"seconds": seconds[2:]})]


WORKLOADS: Final[Mapping[str, Callable[[Opened], list[Figure]]]] = {
    "texts-512": partial(vectors, count=_TOGETHER, tokens=512),
    "texts-64": partial(vectors, count=_TOGETHER, tokens=64),
    "many-texts-64": partial(vectors, count=_MANY, tokens=64),
    "texts-32": partial(vectors, count=1, tokens=32),
}


def _request(opened: Opened, tokens: int) -> Request:
    """Return a request for the vector of a text that no other request has."""
    number = next(_NUMBERS)
    words = words_of(opened.document)
    text = " ".join(spell(token) for token in Random(number).choices(words, k=tokens - 2))
    return Request(f"text-{number}", Embed((text,)))


@torch.inference_mode()
def _reference(opened: Opened, ids: Any) -> Tensor:
    ids_1T = torch.tensor([ids], device=opened.reference.device)
    hidden_TC = opened.reference(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T)).last_hidden_state[0]
    if opened.document["model_type"] == "xlm-roberta":
        return normalize(hidden_TC[0], dim=0)
    first, second = random_denses(opened.document, str(opened.reference.device))
    return normalize(second @ first @ hidden_TC.mean(0), dim=0)
