"""Checks of every request, for any model; a failure refuses only that request."""

import math

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.request import Caption, Chat, Query, Refusal, Request, Sampling, Task
from stoop_worker.engine.spec import Spec

__all__ = ["check_request", "check_task"]

_MOST_STOPS = 16
_MOST_PENALTY = 2
_TEXTS = (Query, Caption, Chat)


def check_request(request: Request, spec: Spec) -> None:
    """Raise `RequestInvalid`, with a message that explains what to change, unless a model with this spec can answer."""
    check_task(request.task, spec.tasks)
    _check_sampling(request.sampling)
    _check_grammar(request)
    _check_stops(request.sampling, spec.vocab_size)


def check_task(task: Task, tasks: tuple[type[Task], ...]) -> None:
    """Raise `RequestInvalid` unless the task is one of those that a model has."""
    if not isinstance(task, tasks):
        known = ", ".join(each.__name__.lower() for each in tasks)
        asked = type(task).__name__.lower()
        raise RequestInvalid(f"this model cannot {asked}: it can {known}", Refusal.UNSUPPORTED_SKILL)


def _check_sampling(sampling: Sampling) -> None:
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise RequestInvalid("temperature must be 0 or more")
    if not 0 <= sampling.top_p <= 1:
        raise RequestInvalid("top_p must be from 0 to 1")
    if sampling.top_k < 0:
        raise RequestInvalid("top_k must be 0, which takes all tokens, or more")
    for name in ("presence_penalty", "frequency_penalty"):
        if not -_MOST_PENALTY <= getattr(sampling, name) <= _MOST_PENALTY:
            raise RequestInvalid(f"{name} must be from -{_MOST_PENALTY} to {_MOST_PENALTY}")
    if sampling.max_tokens < 1:
        raise RequestInvalid("max_tokens must be 1 or more")
    if sampling.max_objects < 1:
        raise RequestInvalid("max_objects must be 1 or more")


def _check_grammar(request: Request) -> None:
    grammar = request.sampling.grammar
    if grammar is None:
        return
    if (grammar.schema is None) == (grammar.regex is None):
        raise RequestInvalid("a text follows a JSON schema or a regular expression: give one of them")
    if not isinstance(request.task, _TEXTS):
        raise RequestInvalid("only a text can follow a schema or a regular expression: leave it out")


def _check_stops(sampling: Sampling, vocab_size: int) -> None:
    if len(sampling.stop) > _MOST_STOPS or not all(sampling.stop):
        raise RequestInvalid(f"stop takes up to {_MOST_STOPS} strings, none of them empty")
    if not all(0 <= token < vocab_size for token in sampling.stop_ids):
        raise RequestInvalid(f"stop_ids must be from 0 to {vocab_size - 1}")
