"""Panics of the library that follows grammars, which are no `Exception`: each breaks one text, and nothing waits."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher, LLTokenizer

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.engine.grammars.limits import limits
from stoop_worker.engine.grammars.masks import Masks
from stoop_worker.engine.request import (
    Aborted,
    Chat,
    Finished,
    FinishReason,
    Grammar,
    Message,
    Output,
    Refusal,
    Refused,
    Request,
    RequestInvalid,
    Sampling,
    Usage,
)
from stoop_worker.engine.thread import EngineThread
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.decoder.model import Decoder, load_decoder
from stoop_worker.models.loading.download import locate, snapshot
from stoop_worker.models.loading.options import LoadOptions
from tests.support.tiny_decoder import QWEN3, VOCABULARY, write_decoder

SECONDS = 20.0
SCHEMA = Grammar(schema='{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}')
DIGITS = Grammar(regex="[0-9]{9}")
REASON = "llguidance failed: index out of bounds"


class Panic(BaseException):
    """As the library's own, whose type cannot be imported."""


class Fragile:
    """Does what a matcher does, until its panic at one call of one method; the library must not be called after it."""

    def __init__(self, matcher: LLMatcher, method: str, calls: int) -> None:
        self._matcher = matcher
        self._method = method
        self._calls = calls
        self._broken = False

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            assert not self._broken, f"{name} is called after the panic"
            self._calls -= name == self._method
            if self._calls < 0:
                self._broken = True
                raise Panic("index out of bounds")
            if name == "deep_copy":
                return Fragile(self._matcher.deep_copy(), self._method, self._calls)
            return getattr(self._matcher, name)(*arguments)

        return call


def compiled(tokens: LLTokenizer, source: str) -> LLMatcher:
    return LLMatcher(tokens, source, log_level=0, limits=limits())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    folder: Path = write_decoder(tmp_path_factory.mktemp("model"), QWEN3)
    return load_decoder(locate(folder, None, snapshot), LoadOptions(torch.device("cpu"), torch.float32))


def grammars(model: Decoder, method: str, calls: int = 0) -> Grammars:
    """Return the model's grammars, with a panic at a call of a method, or at the compilation."""

    def compiles(tokens: LLTokenizer, source: str) -> Any:
        if method == "compile":
            raise Panic("index out of bounds")
        return Fragile(compiled(tokens, source), method, calls)

    language = model.language
    return Grammars(language.tokenizer.document, size=VOCABULARY, ends=language.ends, compiles=compiles)


class Running:
    """An engine in its thread, and the last outputs of its requests."""

    def __init__(self, model: Decoder, grammars: Grammars) -> None:
        family = DecoderFamily(replace(model, language=replace(model.language, grammars=grammars)))
        self.ends: SimpleQueue[Output] = SimpleQueue()
        self.thread = EngineThread(
            Engine(family, EngineConfig(max_batch=4, max_context=256, token_budget=64)), self._deliver
        )
        self.thread.start()

    def ask(self, name: str, grammar: Grammar | None = None) -> None:
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=24, seed=1, grammar=grammar)
        self.thread.submit(Request(name, Chat((Message("user", ("who is that",)),)), (), sampling))

    def next_ends(self, count: int) -> dict[str, Output]:
        return {end.id: end for end in (self.ends.get(timeout=SECONDS) for _ in range(count))}

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, Finished | Refused | Aborted):
                self.ends.put(output)


@pytest.fixture
def run(model: Decoder) -> Iterator[Any]:
    started: list[Running] = []

    def run(grammars: Grammars) -> Running:
        started.append(Running(model, grammars))
        return started[-1]

    yield run
    for each in started:
        each.thread.stop()


@pytest.mark.parametrize("grammar", [SCHEMA, DIGITS], ids=["schema", "regex"])
@pytest.mark.parametrize(
    ("method", "calls"),
    [
        ("compile", 0),
        ("deep_copy", 0),
        ("unsafe_compute_mask_ptr", 0),
        ("unsafe_compute_mask_ptr", 3),
        ("consume_token", 0),
        ("consume_token", 2),
        ("is_error", 1),
        ("is_stopped", 1),
    ],
)
def test_a_panic_refuses_one_request_and_the_engine_goes_on(
    model: Decoder, run: Any, method: str, calls: int, grammar: Grammar
) -> None:
    running = run(grammars(model, method, calls))
    running.ask("free")
    running.ask("broken", grammar)
    ends = running.next_ends(2)
    assert isinstance(ends["free"], Finished)
    refused = ends["broken"]
    assert isinstance(refused, Refused) and refused.refusal is Refusal.INVALID_ARGUMENT
    assert REASON in refused.message
    running.ask("broken", grammar)  # its id is free again
    running.ask("after")
    ends = running.next_ends(2)
    assert isinstance(ends["after"], Finished)
    assert running.thread.alive and running.thread.fault is None


def test_a_grammar_whose_copies_are_damaged_is_compiled_anew(model: Decoder) -> None:
    found = grammars(model, "deep_copy")
    for _ in range(2):
        with pytest.raises(RequestInvalid, match=REASON):
            found.start(DIGITS)
        assert not found.knows(DIGITS)


def masks_of(masks: Masks, constraints: Sequence[Constraint]) -> list[list[int]]:
    masks_NW = np.zeros((len(constraints), -(-VOCABULARY // 32)), dtype=np.int32)
    masks.fill(constraints, masks_NW)
    found: list[list[int]] = masks_NW.tolist()
    return found


def test_of_several_masks_only_that_of_the_panic_is_lost(model: Decoder) -> None:
    def at_once(constraints: Sequence[Constraint], masks_NW: Any) -> None:
        raise Panic("in one of the threads")

    whole = grammars(model, "none")
    one, other = (whole.start(each) for each in (SCHEMA, DIGITS))
    broken = grammars(model, "unsafe_compute_mask_ptr").start(SCHEMA)
    assert one is not None and other is not None and broken is not None
    [first], [last] = masks_of(Masks(), [one]), masks_of(Masks(), [other])
    assert masks_of(Masks([at_once]), [one, broken, other]) == [first, [-1] * len(first), last]
    assert (one.is_broken, broken.is_broken, other.is_broken) == (False, True, False)
    assert not broken.take(0)
    ending = broken.ending(Finished("1", FinishReason.STOP, Usage(1, 1, 0, 0.0, 0.0, 0.0), text="x"))
    assert isinstance(ending, Refused) and REASON in ending.message


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_error_that_is_no_panic_is_not_hidden(model: Decoder, error: type[BaseException]) -> None:
    def compiles(tokens: LLTokenizer, source: str) -> Any:
        raise error

    language = model.language
    found = Grammars(language.tokenizer.document, size=VOCABULARY, ends=language.ends, compiles=compiles)
    with pytest.raises(error):
        found.start(DIGITS)
