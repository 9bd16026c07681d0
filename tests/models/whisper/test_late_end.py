"""The times of words are found beside the engine's thread, so that other requests go on."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Queue

import pytest

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Finished, Output, Request, Transcribe
from stoop_worker.engine.thread import EngineThread
from stoop_worker.models.whisper.alignment import Alignment
from stoop_worker.models.whisper.family import WhisperFamily
from tests.models.whisper.test_transcribe import GREEDY, alone, mel

SECONDS = 60.0
SHORT = replace(GREEDY, max_tokens=12)


@pytest.fixture
def held(family: WhisperFamily, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Alignments wait for this event."""
    gate = threading.Event()
    align: Callable[..., Alignment] = family._align

    def wait(*given: object) -> Alignment:
        assert gate.wait(SECONDS)
        return align(*given)

    monkeypatch.setattr(family, "_align", wait)
    return gate


def start(family: WhisperFamily) -> "tuple[EngineThread, Queue[str]]":
    ended: Queue[str] = Queue()

    def deliver(outputs: Sequence[Output]) -> None:
        for output in outputs:
            if isinstance(output, Finished):
                assert output.window is not None
                ended.put(f"{output.id}: {bool(output.window.words)}")

    engine = EngineThread(Engine(family, EngineConfig(page_size=16, max_batch=2, token_budget=400)), deliver)
    engine.start()
    return engine, ended


def test_a_window_without_words_passes_one_whose_words_are_being_found(
    family: WhisperFamily, held: threading.Event
) -> None:
    engine, ended = start(family)
    try:
        engine.submit(Request("words", Transcribe(language="de", words=True), (mel(0),), SHORT))
        engine.submit(Request("plain", Transcribe(language="de"), (mel(1),), SHORT))
        assert ended.get(timeout=SECONDS) == "plain: False"
        engine.abort("words")  # it has ended, so it is not aborted
        held.set()
        assert ended.get(timeout=SECONDS) == "words: True"
        engine.submit(Request("words", Transcribe(language="de"), (mel(0),), SHORT))  # the id is free again
        assert ended.get(timeout=SECONDS) == "words: False"
    finally:
        held.set()
        engine.stop()


def test_an_error_at_a_late_end_ends_the_engine(family: WhisperFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> Alignment:
        raise ArithmeticError("a defect")

    monkeypatch.setattr(family, "_align", fail)
    lost = threading.Event()
    engine = EngineThread(Engine(family, EngineConfig(page_size=16, token_budget=400)), print, lost.set)
    engine.start()
    engine.submit(Request("words", Transcribe(language="de", words=True), (mel(0),), SHORT))
    assert lost.wait(SECONDS) and isinstance(engine.fault, ArithmeticError)
    engine.stop()


def test_without_a_thread_a_step_finds_the_words(family: WhisperFamily) -> None:
    assert alone(family, Transcribe(language="de", words=True), sampling=SHORT).words
