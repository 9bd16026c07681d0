"""Compares answers with transformers, by the regret that `benchmarks.engine.check` defines."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Final

import torch
from torch import Tensor

from benchmarks.engine.check import Checked, WrongAnswers
from benchmarks.engine.full_size import word_ids
from benchmarks.families.languages import FIRST_WORD
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from stoop_worker.engine.inputs import MediaInput, TokenInput
from stoop_worker.engine.request import Request
from stoop_worker.engine.sequence import Sequence as EngineSequence

__all__ = ["TOKENS", "check_texts", "summed_up"]

TOKENS: Final = 16
"""The tokens of each checked answer."""

_COMPARED: Final = 4

_BOUNDS: Final = {"float32": (0.001, 0.01), "bfloat16": (0.03, 0.9), "fp8": (0.12, 0.9)}
"""Upper bounds of the mean and the worst regret. Another model's answers have a mean of 3 to 4."""

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
        regrets += _regrets(opened.reference, prompt, chosen, given(requests[number]), media_id)
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


@torch.inference_mode()
def _regrets(
    reference: Any, prompt: list[int], chosen: list[int], given: Mapping[str, Tensor], media_id: int
) -> list[float]:
    """Feed the answer after its prompt, and return the regret of each of its tokens."""
    ids_1T = torch.tensor([[*prompt, *chosen[:-1]]], device=reference.device)
    taken = signature(reference.forward).parameters
    kinds = {"mm_token_type_ids": (ids_1T == media_id).int()} if given and "mm_token_type_ids" in taken else {}
    found = reference(input_ids=ids_1T, attention_mask=torch.ones_like(ids_1T), **kinds, **given, use_cache=False)
    logits_TV = found.logits[0, len(prompt) - 1 :].float()
    spread_T = logits_TV[:, FIRST_WORD:].std(dim=1)
    chosen_T = logits_TV.gather(1, torch.tensor(chosen, device=logits_TV.device)[:, None])[:, 0]
    regrets: list[float] = ((logits_TV.amax(dim=1) - chosen_T) / spread_T).tolist()
    return regrets
