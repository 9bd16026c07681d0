"""Compares answers with transformers, by the regret that `benchmarks.engine.check` defines."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.engine.check import Checked, WrongAnswers
from benchmarks.engine.full_size import word_ids
from benchmarks.families.languages import words_of
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from stoop_worker.engine.inputs import MediaInput, TokenInput
from stoop_worker.engine.request import Request
from stoop_worker.engine.sequence import Sequence as EngineSequence

__all__ = ["TOKENS", "check_texts", "regrets_of", "summed_up"]

TOKENS: Final = 16
"""The tokens of each checked answer."""

_COMPARED: Final = 4

_BOUNDS: Final = {"float32": (0.001, 0.01), "bfloat16": (0.02, 0.5), "fp8": (0.35, 1.6)}
"""Upper bounds of the mean and the worst regret. Another model's answers have a mean of 3 to 4.

A Qwen3 of 36 layers and 256 channels has 0.012 and 0.17 in bfloat16.
"""

Given = Callable[[Request], Mapping[str, Tensor]]
"""Returns what transformers takes beside the ids of a request."""


def check_texts(
    opened: Opened, requests: Sequence[Request], *, media_id: int = -1, given: Given = lambda _: {}
) -> Checked:
    """Ask everything at once, and compare the first and the last answers; raises `WrongAnswers`.

    `media_id` is the id that stands for each embedding of a medium.
    """
    answers = Stepping(opened.engine).answers(requests)
    compared = [*range(len(requests))[: _COMPARED // 2], *range(len(requests))[-_COMPARED // 2 :]]
    regrets: list[float] = []
    for number in sorted(set(compared)):
        chosen = word_ids(answers[number].text)
        if len(chosen) != requests[number].sampling.max_tokens:
            raise WrongAnswers(f"an answer has {len(chosen)} tokens: {answers[number]}")
        prompt = _prompt_ids(opened, requests[number], media_id)
        logits_TV = _logits(opened.reference, [*prompt, *chosen[:-1]], given(requests[number]), media_id)
        regrets += regrets_of(logits_TV[len(prompt) - 1 :], chosen, words_of(opened.document))
    return summed_up(opened, len(set(compared)), regrets)


def summed_up(opened: Opened, answers: int, regrets: Sequence[float]) -> Checked:
    """Return the check's figures; raises `WrongAnswers` if a bound is exceeded."""
    same = sum(regret <= 0 for regret in regrets)
    checked = Checked(answers, len(regrets), same, sum(regrets) / len(regrets), max(regrets))
    mean, worst = _BOUNDS[opened.precision]
    if not (checked.mean_regret <= mean and checked.worst_regret <= worst):
        raise WrongAnswers(f"{checked}: in {opened.precision} the mean may be {mean}, the worst {worst}")
    return checked


def _prompt_ids(opened: Opened, request: Request, media_id: int) -> list[int]:
    prepared = opened.engine.prepare(request)
    assert isinstance(prepared, EngineSequence), prepared
    ids: list[int] = []
    for fed in prepared.inputs:
        assert isinstance(fed, TokenInput | MediaInput)
        ids += [fed.id] if isinstance(fed, TokenInput) else [media_id] * fed.width
    return ids


def regrets_of(logits_TV: Tensor, chosen: Sequence[int], words: range) -> list[float]:
    """Return the regret of each chosen token: only `words` may be chosen."""
    possible_TV = logits_TV[:, words.start : words.stop].float()
    chosen_T = logits_TV.gather(1, torch.tensor(chosen, device=logits_TV.device)[:, None])[:, 0].float()
    regrets: list[float] = ((possible_TV.amax(dim=1) - chosen_T) / possible_TV.std(dim=1)).tolist()
    return regrets


@torch.inference_mode()
def _logits(reference: Any, ids: list[int], given: Mapping[str, Tensor], media_id: int) -> Tensor:
    ids_1T = torch.tensor([ids], device=reference.device)
    taken = signature(reference.forward).parameters
    kinds = {"mm_token_type_ids": (ids_1T == media_id).int()} if given and "mm_token_type_ids" in taken else {}
    found = reference(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T), **kinds, **given, use_cache=False)
    logits_TV: Tensor = found.logits[0]
    return logits_TV
