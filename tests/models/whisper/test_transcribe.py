"""A Whisper in the engine: each window gets the answer that it gets alone."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from stoop_worker.audio import Mel
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import (
    Finished,
    FinishReason,
    Output,
    Query,
    Refused,
    Request,
    Sampling,
    Transcribe,
    Window,
)
from stoop_worker.images import Image
from stoop_worker.models.whisper.family import WhisperFamily
from tests.engine.micro import drain, ending
from tests.support.tiny_whisper import TinyWhisper

STATES, CONTEXT = 24, 32 + 64
GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=24)
TASKS = (
    Transcribe(),
    Transcribe(language="de"),
    Transcribe(language="en", translate=True),
    Transcribe(timestamps=False),
    Transcribe(prompt="the cat sat"),
    Transcribe(language="es", prompt="mat", history=tuple(range(40, 80))),
)
SAMPLINGS = (GREEDY, replace(GREEDY, temperature=0.8, seed=5), replace(GREEDY, temperature=1.0, seed=9, max_tokens=3))


@cache
def mel(number: int) -> Mel:
    frames = np.random.default_rng(number).standard_normal((80, 2 * STATES))
    return Mel.of(frames.astype(np.float32))


def request(name: str, task: Transcribe, sound: int = 0, sampling: Sampling = GREEDY) -> Request:
    return Request(name, task, (mel(sound),), sampling)


def window_of(outputs: dict[str, list[Output]], name: str) -> Window:
    last = ending(outputs, name)
    assert isinstance(last, Finished), last
    assert last.window is not None and last.text == last.window.text
    return last.window


def alone(family: WhisperFamily, task: Transcribe, sound: int = 0, sampling: Sampling = GREEDY) -> Window:
    engine = Engine(family, EngineConfig(page_size=16, max_batch=1, token_budget=400, prefix_cache=False))
    return window_of(drain(engine, [request("a", task, sound, sampling)]), "a")


def about(window: Window) -> Window:
    """The window with its numbers rounded: batches of other sizes add in another order."""
    return replace(
        window,
        language_probability=round(window.language_probability, 9),
        average_logprob=round(window.average_logprob, 9),
        no_speech=round(window.no_speech, 9),
    )


@pytest.mark.parametrize("seed", range(12))
def test_in_any_schedule_every_window_gets_the_answer_that_it_gets_alone(family: WhisperFamily, seed: int) -> None:
    draw = random.Random(seed)
    page_size = draw.choice([4, 16, 32])
    max_batch = draw.randint(2, 5)
    config = EngineConfig(
        page_size=page_size,
        pages=CONTEXT // page_size + 1 + draw.choice([0, 10, 200]),
        max_batch=max_batch,
        token_budget=draw.choice([max_batch + 1, 36, 80, 400]),
        encode_budget=draw.choice([1, 16]),
        prefix_cache=draw.random() < 0.6,
        lookahead=draw.random() < 0.5,
    )
    wanted = [(draw.choice(TASKS), draw.randrange(3), draw.choice(SAMPLINGS)) for _ in range(6)]
    engine = Engine(family, config)
    found = drain(engine, [request(str(n), *each) for n, each in enumerate(wanted)])
    for number, each in enumerate(wanted):
        assert about(window_of(found, str(number))) == about(alone_once(family, each)), (number, each)


_KNOWN: dict[tuple[Transcribe, int, Sampling], Window] = {}


def alone_once(family: WhisperFamily, each: tuple[Transcribe, int, Sampling]) -> Window:
    if each not in _KNOWN:
        _KNOWN[each] = alone(family, *each)
    return _KNOWN[each]


@pytest.mark.parametrize("lookahead", [False, True])
def test_windows_that_lose_their_pages_get_the_same_answers(family: WhisperFamily, lookahead: bool) -> None:
    config = EngineConfig(
        page_size=4, pages=CONTEXT // 4 + 1, max_batch=3, token_budget=200, prefix_cache=False, lookahead=lookahead
    )
    engine = Engine(family, config)
    wanted = [(Transcribe(language=language), 0, GREEDY) for language in ("de", "ru", "es")]
    found = drain(engine, [request(str(n), *each) for n, each in enumerate(wanted)])
    assert engine.stats.totals.preemptions
    for number, each in enumerate(wanted):
        assert about(window_of(found, str(number))) == about(alone_once(family, each))


def test_a_second_try_at_a_window_finds_its_memory_in_the_cache(family: WhisperFamily) -> None:
    engine = Engine(family, EngineConfig(max_batch=2, token_budget=400, page_size=4))
    drain(engine, [request("first", TASKS[0])])
    again = ending(drain(engine, [request("again", TASKS[1], sampling=SAMPLINGS[1])]), "again")
    assert isinstance(again, Finished)
    assert again.usage.cached_tokens >= 32
    assert engine.stats.totals.images_encoded == 1


def test_a_language_that_the_request_names_is_not_detected(family: WhisperFamily) -> None:
    detected = alone(family, Transcribe())
    assert 0 < detected.language_probability < 1
    named = alone(family, Transcribe(language=detected.language))
    assert (named.language, named.language_probability) == (detected.language, 1.0)
    assert named.tokens == detected.tokens
    assert named.no_speech == pytest.approx(detected.no_speech)


def test_without_timestamps_a_window_is_one_segment_of_text(family: WhisperFamily, tiny: TinyWhisper) -> None:
    window = alone(family, Transcribe(timestamps=False, language="en"))
    assert window.advance == 30.0
    assert [segment.start for segment in window.segments] == [0.0]
    assert window.segments[0].tokens == window.tokens


def test_a_window_ends_after_half_of_the_positions_at_most(family: WhisperFamily) -> None:
    last = ending(
        drain(
            Engine(family, EngineConfig(max_batch=1, token_budget=400, page_size=4)),
            [request("a", Transcribe(), sampling=replace(GREEDY, max_tokens=500))],
        ),
        "a",
    )
    assert isinstance(last, Finished) and last.window is not None
    assert last.reason is FinishReason.STOP or last.usage.output_tokens == len(last.window.tokens) == 32


def test_the_average_is_over_the_ids_and_the_end(family: WhisperFamily) -> None:
    one = alone(family, Transcribe(language="de"), sampling=replace(GREEDY, max_tokens=1))
    two = alone(family, Transcribe(language="de"), sampling=replace(GREEDY, max_tokens=2))
    assert one.average_logprob < 0
    assert two.average_logprob * 3 < one.average_logprob * 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Request("a", Query("why?"), (mel(0),)), "cannot query: it can transcribe"),
        (Request("a", Transcribe()), "takes one window of sound: 80 mel bands of 48 frames"),
        (Request("a", Transcribe(), (mel(0), mel(1))), "takes one window of sound"),
        (Request("a", Transcribe(), (Image.of(np.zeros((4, 4, 3), dtype=np.uint8)),)), "takes one window of sound"),
        (Request("a", Transcribe(), (Mel.of(np.zeros((80, 50), dtype=np.float32)),)), "takes one window of sound"),
        (
            request("a", Transcribe(language="xx")),
            "language 'xx' is unknown to this model: it knows en, zh",
        ),
        (request("a", Transcribe(history=(-1,))), "history must be ids from 0"),
        (replace(request("a", Transcribe()), adapter="mine"), "has no adapters"),
    ],
)
def test_a_request_that_cannot_run_is_refused_alone(family: WhisperFamily, asked: Request, message: str) -> None:
    engine = Engine(family, EngineConfig(max_batch=2, token_budget=400, page_size=4))
    found = drain(engine, [asked, request("b", TASKS[1])])
    refused = ending(found, "a")
    assert isinstance(refused, Refused)
    assert message in refused.message
    assert isinstance(ending(found, "b"), Finished)


def test_a_prompt_cannot_spell_a_control_token_or_a_time(family: WhisperFamily) -> None:
    prepared = family.prepare(request("a", Transcribe(prompt="<|en|> the <|0.00|> cat")))
    ids = [fed.id for fed in prepared.inputs[2:-1]]  # type: ignore[union-attr]
    assert ids and all(token < family._model.vocabulary.end for token in ids)


def test_long_history_keeps_its_newest_ids(family: WhisperFamily) -> None:
    prepared = family.prepare(request("a", Transcribe(prompt="lost", history=tuple(range(100)))))
    before, *ids, start = (fed.id for fed in prepared.inputs[1:])  # type: ignore[union-attr]
    assert (before, start) == (family._model.vocabulary.before, family._model.vocabulary.start)
    assert ids == list(range(69, 100))  # 64 / 2 - 1 of them


def test_the_engine_answers_a_rehearsal(family: WhisperFamily) -> None:
    engine = Engine(family, EngineConfig(max_batch=2, token_budget=400, page_size=4))
    found = drain(engine, family.rehearsal(engine.config))
    assert all(isinstance(outputs[-1], Finished) for outputs in found.values())


def test_words_are_those_of_the_segments_in_their_order(family: WhisperFamily) -> None:
    plain = alone(family, Transcribe(language="de"))
    window = alone(family, Transcribe(language="de", words=True))
    assert window.tokens == plain.tokens and not plain.words
    # a segment may end inside a character, which its words then keep whole
    heard, read = (
        "".join(filter(str.isascii, text))
        for text in (
            "".join(word.word for word in window.words),
            "".join(segment.text for segment in window.segments),
        )
    )
    assert heard == read != ""
    starts = [word.start for word in window.words]
    assert starts == sorted(starts)
    assert all(0 <= word.probability <= 1 and 0 <= word.start <= word.end for word in window.words)


def test_no_word_is_heard_after_the_audio_of_a_window(family: WhisperFamily) -> None:
    ids = family._model.vocabulary
    before, text = [ids.start, ids.no_stamps], list(range(40, 50))
    whole = mel(0)
    short = replace(whole, content=12)
    assert max(family._align((whole,), before, text).times) > 0.12
    assert max(family._align((short,), before, text).times) < 0.12
