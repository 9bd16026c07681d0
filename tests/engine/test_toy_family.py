"""A family that shares nothing with Moondream, in the same engine: it gets the answers of its own naive loop."""

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device import runner
from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Caption, Finished, Output, Query, Refusal, Refused, Request, TextDelta
from stoop_worker.images import Image
from stoop_worker.kernels.paged_attention import PagedLayout, reference
from tests.engine.audit import audit
from tests.engine.kept_work import KeptWork
from tests.engine.micro import crops_of, drain, ending
from tests.engine.toy_family import naive, text
from tests.engine.toy_family.family import ToyFamily
from tests.engine.toy_family.questions import QUESTIONS, SAMPLINGS, Asked, picture, request
from tests.engine.toy_family.sizes import CONTEXT, VOCABULARY

# the long ones and the endless ones more often: only they fill a pool
asked = st.tuples(st.sampled_from([*range(len(QUESTIONS)), 6, 7]), st.sampled_from([0, 0, 1, 2, 2, 3, 3, 4]))


@cache
def expected(wanted: Asked) -> naive.Answer:
    return naive.answer(request("naive", wanted))


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    page_size = draw(st.sampled_from([2, 4, 8, 16]))
    max_batch = draw(st.integers(1, 5))
    least = CONTEXT // page_size + 1
    return EngineConfig(
        page_size=page_size,
        pages=draw(st.sampled_from([least, least, 4 * least])),
        max_batch=max_batch,
        token_budget=draw(st.sampled_from([max_batch + 1, 12, 40, 200])),
        encode_budget=draw(st.sampled_from([1, 10, 64])),
        prefix_cache=draw(st.booleans()),
        lookahead=draw(st.booleans()),
    )


@dataclass
class Seen:
    """The features that the schedules used, so that the test notices a missing one."""

    preemptions: int = 0
    hits: int = 0
    chunks: int = 0
    batches: int = 0
    runs: list[int] = field(default_factory=list)


def check(outputs: list[Output], wanted: Asked) -> None:
    finished, answer = outputs[-1], expected(wanted)
    assert isinstance(finished, Finished)
    assert (finished.text, finished.reason) == (answer.text, answer.reason)
    assert finished.usage.input_tokens == answer.input_tokens
    assert "".join(output.text for output in outputs if isinstance(output, TextDelta)) == finished.text


def play(engine: Engine, arrivals: list[tuple[int, Asked]], seen: Seen) -> dict[str, list[Output]]:
    received: dict[str, list[Output]] = {str(index): [] for index in range(len(arrivals))}
    for step in range(3000):
        for index, (at, wanted) in enumerate(arrivals):
            if at == step:
                engine.submit(request(str(index), wanted))
        for output in engine.step():
            received[output.id].append(output)
        running = engine._scheduler.running
        seen.batches += len(running) > 1
        seen.chunks += any(0 < sequence.cached_len < sequence.prompt_len for sequence in running)
        audit(engine._scheduler.pool)
        if engine.idle and step > 10:
            break
    assert engine.idle
    engine.check()
    return received


def test_a_request_gets_its_own_answer_in_any_schedule() -> None:
    seen = Seen()

    @settings(max_examples=70)
    @given(config=configs(), arrivals=st.lists(st.tuples(st.integers(0, 3), asked), min_size=2, max_size=5))
    def any_schedule(config: EngineConfig, arrivals: list[tuple[int, Asked]]) -> None:
        engine = Engine(ToyFamily(), config)
        received = play(engine, arrivals, seen)
        totals = engine.stats.totals
        seen.runs.append(len(arrivals))
        seen.preemptions += totals.preemptions > 0
        seen.hits += totals.image_hits > 0
        for index, (_, wanted) in enumerate(arrivals):
            check(received[str(index)], wanted)

    any_schedule()
    assert len(seen.runs) >= 70
    assert min(seen.preemptions, seen.hits, seen.chunks, seen.batches) >= 3, seen


def test_the_questions_meet_every_way_to_end() -> None:
    answers = {(question, sampling): expected((question, sampling)) for question in range(8) for sampling in range(5)}
    assert {answer.reason.value for answer in answers.values()} == {"stop", "length"}
    assert any(not answer.tokens for answer in answers.values())
    stopped = [answer for (_, sampling), answer in answers.items() if sampling == 4]
    assert any(answer.text != "".join(f"{token} " for token in answer.tokens) for answer in stopped)
    assert any(token > 1 << 16 for answer in answers.values() for token in answer.tokens)


def test_two_images_are_encoded_once_for_all_questions_that_begin_alike() -> None:
    engine = Engine(ToyFamily(), EngineConfig(page_size=4, max_batch=4, token_budget=64))
    first = request("a", (4, 1))
    again = Request("b", Query("5 6 <image> 7 <image> 12"), first.media, first.sampling)
    other = Request("c", Query("5 6 <image> 7 <image> 8"), (picture(0), picture(1)), first.sampling)
    received = drain(engine, [first, again, other])
    # 5, 6, the first image, 7, the second image: all but the last number; of the last, all up to its second image
    assert [ending(received, name).usage.cached_tokens for name in "abc"] == [0, 12, 7]  # type: ignore[union-attr]
    assert engine.stats.totals.images_encoded == 3


@pytest.mark.parametrize(
    ("question", "media", "message"),
    [
        ("5 <image> 6", (), "1 markers"),
        ("5 6", (picture(0),), "0 markers"),
        ("5 <image>", (picture(0),), "ends in a number"),
        (f"{VOCABULARY}", (), "is no number from 1"),
        ("5 <image> 6", (crops_of(0),), "whole images"),
    ],
)
def test_a_request_that_it_cannot_run_is_refused_with_the_reason(
    question: str, media: tuple[Image, ...], message: str
) -> None:
    engine = Engine(ToyFamily(), EngineConfig(page_size=4))
    last = ending(drain(engine, [Request("a", Query(question), media)]), "a")
    assert isinstance(last, Refused) and last.refusal is Refusal.INVALID_ARGUMENT and message in last.message


def test_a_skill_that_it_lacks_is_an_unsupported_skill() -> None:
    last = ending(drain(Engine(ToyFamily(), EngineConfig(page_size=4)), [Request("a", Caption())]), "a")
    assert isinstance(last, Refused) and last.refusal is Refusal.UNSUPPORTED_SKILL


def attention_by_tensors(q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float) -> Tensor:
    """Attend by the layout's tensors on the device alone, as a captured prefill does."""
    if layout.cu_seqlens or len(q_THD) == len(layout.context_lens_B):
        return reference.paged_attention(q_THD, pool, layout, scale=scale)
    starts = layout.cu_seqlens_B1.tolist()
    rows = [row for row, (start, end) in enumerate(pairwise(starts)) if end > start]
    whole = replace(
        layout,
        page_table_BP=layout.page_table_BP[rows],
        cu_seqlens=(*(starts[row] for row in rows), starts[-1]),
        context_lens_B=layout.context_lens_B[rows],
        context_lens=tuple(layout.context_lens_B[rows].tolist()),
        prefix_lens=tuple(layout.prefix_lens_B[rows].tolist()),
    )
    out_THD = torch.zeros_like(q_THD)
    if rows:
        out_THD[: starts[-1]] = reference.paged_attention(q_THD[: starts[-1]], pool, whole, scale=scale)
    return out_THD


def test_captured_steps_answer_like_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = KeptWork()
    monkeypatch.setattr(runner, "_can_capture", lambda model: True)
    monkeypatch.setattr(runner, "Graphs", lambda: graphs)
    monkeypatch.setattr(text, "paged_attention", attention_by_tensors)
    engine = Engine(ToyFamily(), EngineConfig(page_size=4, max_batch=6, token_budget=128, lookahead=True))
    engine.warm_up()
    asked = [(question, sampling) for question in range(len(QUESTIONS)) for sampling in range(len(SAMPLINGS))]
    received = drain(engine, [request(f"{question} {sampling}", (question, sampling)) for question, sampling in asked])
    for question, sampling in asked:
        check(received[f"{question} {sampling}"], (question, sampling))
    prefills = [key for key in graphs.replayed if isinstance(key, PrefillShape)]
    assert {key.given > 0 for key in prefills} == {True, False}
    decodes = [key[2] for key in graphs.replayed if isinstance(key, tuple)]
    assert {(kind.values, kind.top_k) for kind in decodes} == {(False, False), (False, True)}
