"""The engine of encoders, with a model whose values show the ids that it read."""

from threading import Event

import numpy as np
import pytest
import torch

from stoop_worker.engine.batch_engine import BatchEngine
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import EncoderSpec, Text, Values
from stoop_worker.engine.request import (
    Aborted,
    Embed,
    Finished,
    FinishReason,
    Output,
    Query,
    Refusal,
    Refused,
    Request,
    Usage,
)
from stoop_worker.engine.tensors import PackedTexts, TextValues
from stoop_worker.engine.thread import EngineThread


class Adder:
    """Reads each letter as its code; the value of a text is the sum, which shows whether texts were mixed up."""

    spec = EncoderSpec((Embed,), 1, 128, 64)
    name, digest, untrained = "adder", "adder", False
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.broken = False

    def prepare_texts(self, request: Request) -> tuple[Text, ...]:
        assert isinstance(request.task, Embed)
        return tuple(Text(tuple(text.encode())) for text in request.task.texts)

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        return []

    def encode_texts(self, packed: PackedTexts) -> TextValues:
        if self.broken:
            raise RuntimeError("the device is gone")
        packed.on_progress()
        lengths = np.diff(packed.starts).tolist()
        self.steps.append(lengths)
        assert packed.positions_T.tolist() == [place for length in lengths for place in range(length)]
        assert packed.firsts_N.tolist() == list(packed.starts[:-1])
        return TextValues.of_rows(torch.stack([part.sum() for part in packed.ids_T.split(lengths)])[:, None])

    def answer(self, request: Request, texts: tuple[Text, ...], values: list[Values], usage: Usage) -> Finished:
        return Finished(request.id, FinishReason.STOP, usage, scores=tuple(float(value[0]) for value in values))


def engine_of(model: Adder, **config: int | bool) -> BatchEngine:
    return BatchEngine(model, EngineConfig(**{"max_batch": 4, "token_budget": 16, **config}))  # type: ignore[arg-type]


def finish(engine: BatchEngine) -> dict[str, Output]:
    outputs = [output for _ in iter(lambda: engine.idle, True) for output in engine.step()]
    engine.check()
    assert len({output.id for output in outputs}) == len(outputs), "each request ends once"
    return {output.id: output for output in outputs}


def scores(output: Output) -> tuple[float, ...]:
    assert isinstance(output, Finished)
    return output.scores


def total(text: str) -> float:
    return float(sum(text.encode()))


def test_every_text_gets_its_own_values_in_the_order_asked() -> None:
    engine = engine_of(Adder())
    asked = {"a": ("cat", "a", "elephant"), "b": ("a", "dog"), "c": ("mouse",) * 3}
    for name, texts in asked.items():
        engine.submit(Request(name, Embed(texts)))
    found = finish(engine)
    assert {name: scores(output) for name, output in found.items()} == {
        name: tuple(map(total, texts)) for name, texts in asked.items()
    }


def test_a_step_takes_as_many_tokens_as_its_budget_and_a_longer_text_runs_alone() -> None:
    model = Adder()
    engine = engine_of(model)
    for number, text in enumerate(("b" * 10, "c" * 5, "d" * 2, "e" * 30, "f" * 3)):
        engine.submit(Request(str(number), Embed((text,))))
    finish(engine)
    assert model.steps == [[5, 10], [2], [30], [3]]


def test_equal_texts_run_once_and_texts_seen_before_not_at_all() -> None:
    model = Adder()
    engine = engine_of(model)
    engine.submit(Request("a", Embed(("cat", "cat"))))
    engine.submit(Request("b", Embed(("cat", "dog"))))
    finish(engine)
    assert model.steps == [[3, 3]]
    engine.submit(Request("c", Embed(("dog", "cat"))))
    found = finish(engine)["c"]
    assert len(model.steps) == 1
    assert isinstance(found, Finished) and found.scores == (total("dog"), total("cat"))
    assert (found.usage.input_tokens, found.usage.cached_tokens) == (6, 6)


def test_without_the_cache_a_text_runs_again() -> None:
    model = Adder()
    engine = engine_of(model, prefix_cache=False)
    for name in "ab":
        engine.submit(Request(name, Embed(("cat",))))
        finish(engine)
    assert model.steps == [[3], [3]]


def test_an_aborted_request_ends_once_and_its_texts_do_not_run() -> None:
    model = Adder()
    engine = engine_of(model)
    engine.submit(Request("a", Embed(("b" * 10, "c" * 10, "d" * 10))))
    engine.submit(Request("b", Embed(("e" * 10,))))
    assert engine.step() == []
    engine.abort("a")
    engine.abort("a")
    found = finish(engine)
    assert found["a"] == Aborted("a") and scores(found["b"]) == (total("e" * 10),)
    assert model.steps == [[10], [10]]
    engine.submit(Request("a", Embed(("cat",))))
    assert scores(finish(engine)["a"]) == (total("cat"),), "the id is free again"


def test_an_earlier_priority_goes_first_and_a_later_one_is_not_starved() -> None:
    engine = engine_of(Adder())
    engine.submit(Request("bulk", Embed(("b" * 16,)), priority=1))
    ended: list[str] = []
    for number in range(400):
        engine.submit(Request(str(number), Embed((f"{number:016}",))))
        ended += [output.id for output in engine.step()]
    assert ended[0] == "0" and "bulk" in ended


def test_a_request_for_another_skill_and_too_long_a_text_are_refused() -> None:
    engine = engine_of(Adder())
    engine.submit(Request("a", Query("what?")))
    engine.submit(Request("b", Embed(("cat", "e" * 65))))
    engine.submit(Request("c", Embed(("cat",))))
    found = finish(engine)
    assert found["a"] == Refused("a", Refusal.UNSUPPORTED_SKILL, "this model cannot query: it can embed")
    refused = found["b"]
    assert isinstance(refused, Refused) and refused.refusal is Refusal.CONTEXT_OVERFLOW
    assert "has 65 tokens: at most 64" in refused.message
    assert scores(found["c"]) == (total("cat"),)


def test_an_id_in_flight_is_not_taken_twice() -> None:
    engine = engine_of(Adder())
    engine.submit(Request("a", Embed(("cat",))))
    with pytest.raises(ValueError, match="in flight"):
        engine.submit(Request("a", Embed(("dog",))))


def test_ahead_a_batch_starts_before_the_one_before_is_read() -> None:
    model = Adder()
    engine = BatchEngine(model, EngineConfig(max_batch=4, token_budget=16), ahead=True)
    for name in "abc":
        engine.submit(Request(name, Embed((name * 16,))))
    assert engine.step() == [], "nothing was started before"
    assert [output.id for output in engine.step()] == ["a"]
    assert model.steps == [[16], [16]]
    assert {name: scores(output) for name, output in finish(engine).items()} == {
        "b": (total("b" * 16),),
        "c": (total("c" * 16),),
    }


def test_ahead_a_text_that_is_being_computed_is_not_computed_again() -> None:
    model = Adder()
    engine = BatchEngine(model, EngineConfig(max_batch=4, token_budget=16, prefix_cache=False), ahead=True)
    engine.submit(Request("a", Embed(("cat",))))
    assert engine.step() == []
    engine.submit(Request("b", Embed(("cat",))))
    engine.submit(Request("c", Embed(("mouse", "cat"))))
    found = finish(engine)
    assert model.steps == [[3], [5]]
    assert {name: scores(output) for name, output in found.items()} == {
        "a": (total("cat"),),
        "b": (total("cat"),),
        "c": (total("mouse"), total("cat")),
    }
    assert engine.stats.figures["cached_tokens_total"] == 6


def test_ahead_a_request_that_is_aborted_while_it_is_computed_leaves_the_others_whole() -> None:
    model = Adder()
    engine = BatchEngine(model, EngineConfig(max_batch=4, token_budget=16), ahead=True)
    engine.submit(Request("a", Embed(("cat", "dog"))))
    assert engine.step() == []
    engine.abort("a")
    engine.submit(Request("a", Embed(("dog",))))
    outputs = [output for _ in iter(lambda: engine.idle, True) for output in engine.step()]
    engine.check()
    assert outputs[0] == Aborted("a") and [scores(output) for output in outputs[1:]] == [(total("dog"),)]
    assert model.steps == [[3, 3]]


def test_the_figures_count_the_work() -> None:
    engine = engine_of(Adder())
    engine.submit(Request("a", Embed(("cat", "cat"))))
    assert engine.stats.figures["waiting"] == 1
    before = engine.progress
    finish(engine)
    figures = engine.stats.figures
    assert engine.progress > before
    assert (figures["finished_total"], figures["prefill_tokens_total"], figures["cached_tokens_total"]) == (1, 3, 3)


def test_the_thread_runs_it_and_ends_with_its_fault() -> None:
    model = Adder()
    outputs: list[Output] = []
    done, ended = Event(), Event()

    def deliver(found: list[Output]) -> None:
        outputs.extend(found)
        done.set()

    thread = EngineThread(engine_of(model), deliver, ended.set)  # type: ignore[arg-type]
    thread.start()
    thread.submit(Request("a", Embed(("cat",))))
    assert done.wait(60)
    assert scores(outputs[0]) == (total("cat"),)
    model.broken = True
    thread.submit(Request("b", Embed(("dog",))))
    assert ended.wait(60)
    assert not thread.alive and isinstance(thread.fault, RuntimeError)
