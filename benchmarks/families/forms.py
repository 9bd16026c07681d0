"""The workload of constrained answers: JSON by a schema against free text, in steps in which all requests decode."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from statistics import median
from typing import Final

from benchmarks.engine.check import WrongAnswers
from benchmarks.engine.decode_rate import steady
from benchmarks.families.chats import prompts
from benchmarks.families.figure import Figure
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from stoop_worker.engine.request import FinishReason, Grammar, Request

__all__ = ["FIELDS", "MOST_CHARACTERS", "WORKLOADS", "grammar_of", "requests_of"]

_PROMPT, _TOKENS = 300, 128
_ROUNDS: Final = 3
_COMPLETE: Final = 512
"""More tokens than the longest text of the check's schema has bytes, so that none is cut: a cut text is not JSON."""

FIELDS: Final = ("name", "title", "city", "street", "colour", "reason", "summary", "comment")
MOST_CHARACTERS: Final = 60


def constrained(opened: Opened) -> list[Figure]:
    """Time free text and JSON alternately; the last figure is the ratio."""
    _check(opened)
    stepping, load = Stepping(opened.engine), max(opened.loads)
    grammars = {"free-text": None, "json": grammar_of(FIELDS, MOST_CHARACTERS)}
    requests = {name: requests_of(opened, name, grammar) for name, grammar in grammars.items()}
    rates: dict[str, list[float]] = {name: [] for name in grammars}
    for _ in range(_ROUNDS + 1):
        for name, own in requests.items():
            rates[name].append(steady(stepping.together(list(islice(own, load)))).tokens_per_second)
    middle = {name: median(found[1:]) for name, found in rates.items()}  # the first ones warm it up
    figures = [Figure(name, load, rate, "tok/s", details={"rates": rates[name]}) for name, rate in middle.items()]
    return [*figures, Figure("json/free", load, middle["json"] / middle["free-text"], "ratio")]


WORKLOADS: Final[Mapping[str, Callable[[Opened], list[Figure]]]] = {"json": constrained}


def _check(opened: Opened) -> None:
    """Raise `WrongAnswers` unless as many answers as are in flight are JSON by their schema."""
    fields, most = FIELDS[:2], 5
    requests = requests_of(opened, "check-json", grammar_of(fields, most), tokens=_COMPLETE)
    for answer in Stepping(opened.engine).answers(list(islice(requests, max(opened.loads)))):
        if answer.reason is not FinishReason.STOP:
            raise WrongAnswers(f"an answer has no end after {_COMPLETE} tokens: {answer}")
        if not _follows(answer.text, fields, most):
            raise WrongAnswers(f"an answer does not follow its schema: {answer}")


def _follows(text: str, fields: tuple[str, ...], most: int) -> bool:
    """Return whether a text is JSON by the schema of `grammar_of`."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    named = isinstance(found, dict) and tuple(found) == fields
    return named and all(isinstance(each, str) and len(each) <= most for each in found.values())


def requests_of(opened: Opened, name: str, grammar: Grammar | None, tokens: int | None = None) -> Iterator[Request]:
    asks = prompts(opened.length(_PROMPT) + 16, tokens or max(16, opened.length(_TOKENS)))
    for number, ask in zip(count(), asks, strict=False):
        yield Request(f"{name}-{number}", ask.task, (), replace(ask.sampling, grammar=grammar))


def grammar_of(fields: tuple[str, ...], most: int) -> Grammar:
    schema = {
        "type": "object",
        "properties": {field: {"type": "string", "maxLength": most} for field in fields},
        "required": list(fields),
        "additionalProperties": False,
    }
    return Grammar(schema=json.dumps(schema))
