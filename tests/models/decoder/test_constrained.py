"""Texts that follow a grammar, and penalties, in the engine: as a naive loop writes them, and beside any neighbours."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.decode_buffers import DecodeKind
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import (
    Chat,
    Finished,
    FinishReason,
    Grammar,
    Message,
    Output,
    Refused,
    Request,
    Sampling,
    TextDelta,
)
from stoop_worker.engine.thread import EngineThread
from stoop_worker.models.decoder import text
from stoop_worker.models.decoder.family import DecoderFamily
from stoop_worker.models.decoder.prompt import chat_ids, text_messages
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from tests.engine.kept_work import KeptWork
from tests.support.model_run import ModelRun
from tests.support.tiny_decoder import QWEN3, write_decoder

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON = Grammar(schema=json.dumps(SCHEMA))
DIGITS = Grammar(regex="[0-9]{30}")
CHAT = Chat((Message("user", ("who is that",)),))
FREE = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 40}


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> DecoderFamily:
    folder: Path = write_decoder(tmp_path_factory.mktemp("model"), QWEN3)
    loaded = load_model(folder, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(loaded, DecoderFamily)
    return loaded


def request(name: str, seed: int = 0, **sampling: Any) -> Request:
    return Request(name, CHAT, (), Sampling(**{**FREE, "seed": seed, **sampling}))


def answers(family: DecoderFamily, requests: Sequence[Request], **config: Any) -> dict[str, Output]:
    """Return the last output of each request, and check that a text's deltas make the whole of it."""
    engine = Engine(family, EngineConfig(**{"max_batch": 8, "max_context": 512, "token_budget": 128, **config}))
    for each in requests:
        engine.submit(each)
    ended: dict[str, Output] = {}
    written: dict[str, str] = {each.id: "" for each in requests}
    while not engine.idle:
        for output in engine.step():
            if isinstance(output, TextDelta):
                written[output.id] += output.text
            else:
                ended[output.id] = output
    engine.check()
    assert all(output.text == written[output.id] for output in ended.values() if isinstance(output, Finished))
    return ended


def texts(family: DecoderFamily, requests: Sequence[Request], **config: Any) -> dict[str, str]:
    ended = answers(family, requests, **config)
    return {name: output.text for name, output in ended.items() if isinstance(output, Finished)}


CONSTRAINED = [request(f"json {seed}", seed, grammar=JSON, max_tokens=200) for seed in range(3)]
CODES = [request(f"code {seed}", seed, grammar=Grammar(regex="[A-F]{4}-[0-9]{2,3}")) for seed in range(3)]
OTHERS = [request("free 1", 1), request("free 2", 2, top_k=5), request("greedy", temperature=0.0)]


def test_a_compiling_grammar_delays_no_other_request(family: DecoderFamily) -> None:
    """A hostile schema keeps each process that tries grammars busy for half a second; here they are taken away."""
    trials = family._model.language.grammars._trials
    taken = [trials.get() for _ in range(trials.qsize())]
    ended: SimpleQueue[Output] = SimpleQueue()

    def deliver(outputs: Sequence[Output]) -> None:
        for output in outputs:
            if not isinstance(output, TextDelta):
                ended.put(output)

    engine = Engine(family, EngineConfig(max_batch=8, max_context=512, token_budget=128))
    thread = EngineThread(engine, deliver)
    thread.start()
    thread.submit(request("new", grammar=Grammar(regex="[0-9]{3}"), max_tokens=9))
    thread.submit(request("free"))
    assert ended.get(timeout=20).id == "free"
    for trial in taken:
        trials.put(trial)
    assert ended.get(timeout=20).id == "new"
    thread.stop()


@pytest.mark.parametrize("lookahead", [False, True])
def test_constrained_texts_are_of_their_form_and_free_ones_do_not_notice_them(
    family: DecoderFamily, lookahead: bool
) -> None:
    alone = texts(family, OTHERS, lookahead=lookahead)
    together = texts(family, [*CONSTRAINED, *OTHERS, *CODES], lookahead=lookahead)
    assert {name: together[name] for name in alone} == alone
    for each in CONSTRAINED:
        found = json.loads(together[each.id])
        assert found.keys() == {"name", "age"} and len(found["name"]) <= 5 and isinstance(found["age"], int)
    assert all(re.fullmatch("[A-F]{4}-[0-9]{2,3}", together[each.id]) for each in CODES)


def test_a_constrained_text_is_the_same_alone_ahead_and_after_preemptions(family: DecoderFamily) -> None:
    asked = [*CONSTRAINED, *CODES]
    plain = texts(family, asked, lookahead=False)
    assert {name: text for each in asked for name, text in texts(family, [each], lookahead=True).items()} == plain
    # pages for little more than one sequence, so that the others are preempted again and again
    assert texts(family, asked, lookahead=True, pages=33, prefix_cache=False) == plain


def test_captured_steps_answer_like_all_others(family: DecoderFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = [request(f"counted {seed}", seed, presence_penalty=1.0, top_k=9) for seed in range(2)]
    asked = [*CONSTRAINED, *OTHERS, *counted, *CODES]  # more than there are seats, so that they come and go
    plain = texts(family, asked, lookahead=True)
    graphs = KeptWork()
    monkeypatch.setattr(runner, "_can_capture", lambda model: True)
    monkeypatch.setattr(runner, "Graphs", lambda: graphs)
    assert texts(family, asked, lookahead=True) == plain
    kinds = {key[2] for key in graphs.replayed if isinstance(key, tuple) and isinstance(key[2], DecodeKind)}
    assert {(kind.masked, kind.penalised) for kind in kinds} >= {(True, True), (True, False)}
    starts = sum(isinstance(key, tuple) and key[0] == "decode to hidden" for key in graphs.replayed)
    assert starts == sum(
        isinstance(key, tuple) and isinstance(key[2], DecodeKind) and key[2].masked for key in graphs.replayed
    )


def test_greedy_tokens_are_the_likeliest_of_those_that_the_grammar_allows(family: DecoderFamily) -> None:
    assert texts(family, [request("1", temperature=0.0, grammar=DIGITS)])["1"] == naive(family, 30)


def test_a_text_cut_short_by_a_limit_finishes_with_length(family: DecoderFamily) -> None:
    ended = answers(family, [request("1", grammar=JSON, max_tokens=3), request("2", grammar=JSON, stop=('"name"',))])
    assert isinstance(ended["1"], Finished) and ended["1"].reason is FinishReason.LENGTH
    assert isinstance(ended["2"], Finished) and ended["2"].text.strip() == "{"


def test_a_grammar_that_does_not_compile_fails_its_request_alone(family: DecoderFamily) -> None:
    ended = answers(family, [request("bad", grammar=Grammar(regex="[a")), OTHERS[0]])
    assert isinstance(ended["bad"], Refused) and "unclosed" in ended["bad"].message
    assert isinstance(ended["free 1"], Finished)


def naive(family: DecoderFamily, count: int, **penalties: float) -> str:
    """Write `count` digits greedily, one whole forward a digit, with penalties."""
    language, weights = family._model.language, family._model.weights
    run, ids = ModelRun(family), chat_ids(request("naive"), language, text_messages)
    digits = [token for digit in "0123456789" for token in language.tokenizer.tokenize(digit)]
    sampled: list[int] = []
    for _ in range(count):
        with torch.inference_mode():
            logits_V = text.logits(run.feed(ids)[-1:], weights)[0].tolist()
        for token in set(sampled):
            logits_V[token] -= penalties.get("presence_penalty", 0.0)
            logits_V[token] -= penalties.get("frequency_penalty", 0.0) * sampled.count(token)
        ids = [max(digits, key=lambda token: logits_V[token])]
        sampled += ids
    return language.tokenizer.detokenize(sampled)


@pytest.mark.parametrize(
    "penalties",
    [{"presence_penalty": 1.5}, {"frequency_penalty": 0.7}, {"presence_penalty": -0.5, "frequency_penalty": 2.0}],
)
@pytest.mark.parametrize("lookahead", [False, True])
def test_penalties_are_those_of_a_naive_loop(
    family: DecoderFamily, penalties: dict[str, float], lookahead: bool
) -> None:
    asked = [request("1", temperature=0.0, grammar=DIGITS, **penalties), *OTHERS]
    found = texts(family, asked, lookahead=lookahead)
    assert found["1"] == naive(family, 30, **penalties)
    assert found["1"] != naive(family, 30)
    assert {name: text for name, text in found.items() if name != "1"} == texts(family, OTHERS, lookahead=lookahead)


def test_penalties_count_the_same_tokens_after_preemptions_and_in_a_seat_that_another_left(
    family: DecoderFamily,
) -> None:
    """Without a grammar too, so that tokens are sampled before the host knows the last ones."""
    penalties = {"presence_penalty": 1.0, "frequency_penalty": 0.3}
    digits = [request(f"digits {seed}", seed, grammar=DIGITS, **penalties) for seed in range(2)]
    asked = [*(request(str(seed), seed, **penalties) for seed in range(3)), *digits]
    alone = {name: text for each in asked for name, text in texts(family, [each], lookahead=False).items()}
    assert texts(family, asked, lookahead=True, max_batch=2) == alone
    assert texts(family, asked, lookahead=True, pages=33, prefix_cache=False) == alone
