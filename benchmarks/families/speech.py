"""The workloads of Whisper: windows of 30 seconds, from their log-mel frames, and a recording of an hour."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Final

import numpy as np
import torch

from benchmarks.engine.check import Checked, WrongAnswers
from benchmarks.engine.engine_run import EngineRun
from benchmarks.engine.run import closed_loop
from benchmarks.engine.workloads import Ask
from benchmarks.families.check import TOKENS, regrets_of, summed_up
from benchmarks.families.figure import Figure
from benchmarks.families.hour import hour
from benchmarks.families.languages import WHISPER_CONTROLS, words_of
from benchmarks.families.opened import Opened
from benchmarks.families.stepping import Stepping
from stoop_worker.audio import Mel
from stoop_worker.engine.request import Request, Transcribe

__all__ = ["START", "WORKLOADS", "asks_of", "check", "request_of", "windows_of"]

_SECONDS: Final = 30
_TOKENS: Final = 100
_CHECKED: Final = 3
_WINDOWS: Final = 64  # further requests reuse them, as other windows
START: Final = ("<|startoftranscript|>", "<|en|>", "<|transcribe|>")
"""The tokens before a transcript."""


def check(opened: Opened) -> Checked:
    """Compare the tokens of a few windows, which run together, with transformers."""
    windows = windows_of(opened, _CHECKED)
    asks = islice(asks_of(TOKENS), _CHECKED)
    requests = [request_of(f"check-{ask.photo}", ask, windows) for ask in asks]
    regrets: list[float] = []
    for request, answer in zip(requests, Stepping(opened.engine).answers(requests), strict=True):
        assert answer.window is not None
        if len(answer.window.tokens) != TOKENS:
            raise WrongAnswers(f"a window has {len(answer.window.tokens)} tokens: {answer.window}")
        regrets += _regrets(opened, request, answer.window.tokens)
    return summed_up(opened, _CHECKED, regrets)


def transcribe(opened: Opened) -> list[Figure]:
    """Time windows with 100 tokens each."""
    arguments = opened.arguments
    windows = windows_of(opened, 8 if opened.is_tiny else _WINDOWS)
    asks = asks_of(opened.length(_TOKENS), first=_CHECKED)
    figures = []
    with EngineRun(opened.engine, lambda name, ask: request_of(name, ask, windows)) as running:
        running.together(list(islice(asks, max(opened.loads))))
        for load in opened.loads:
            wanted = max(8, min(arguments.requests, arguments.requests * load // 16))
            found = closed_loop(running, asks, load, requests=wanted, seconds=arguments.seconds)
            p50 = None if found.latency is None else found.latency.p50
            speed = _SECONDS * found.requests_per_second
            figures.append(Figure("windows", load, speed, "x real time", p50, {"figures": found}))
    return figures


WORKLOADS: Final[Mapping[str, Callable[[Opened], list[Figure]]]] = {"windows": transcribe, "hour": hour}


def asks_of(tokens: int, first: int = 0) -> Iterator[Ask]:
    """Yield windows with timestamps, whose rules run beside the model."""
    return (Ask(Transcribe("en"), photo=number, tokens=tokens) for number in count(first))


def windows_of(opened: Opened, count: int) -> list[Mel]:
    """Return windows of noise, which all differ."""
    noise = np.random.default_rng(1).standard_normal((opened.document["num_mel_bins"], 3000)).astype(np.float32)
    return [Mel.of(np.roll(noise, 5 * number, axis=1)) for number in range(count)]


def request_of(name: str, ask: Ask, windows: list[Mel]) -> Request:
    """Return a window that the cache does not know, although its frames may be another one's."""
    window = windows[ask.photo % len(windows)]
    return Request(name, ask.task, (replace(window, digest=b"%d %s" % (ask.photo, window.digest)),), ask.sampling)


@torch.inference_mode()
def _regrets(opened: Opened, request: Request, chosen: tuple[int, ...]) -> list[float]:
    """Return the regrets of the words; the rules set the first token, a timestamp."""
    window, words, model = request.media[0], words_of(opened.document), opened.reference
    assert isinstance(window, Mel)
    start = [words.stop + WHISPER_CONTROLS.index(each) for each in START]
    ids = torch.tensor([[*start, *chosen[:-1]]], device=model.device)
    frames = torch.from_numpy(window.frames)[None].to(model.device)
    logits_TV = model(input_features=frames, decoder_input_ids=ids, use_cache=False).logits[0]
    return regrets_of(logits_TV[len(start) :], chosen[1:], words)
