"""The Whisper that comes with the project: it must hear words, not only run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deploy.demo_hearing.exam import errors, hear, words
from stoop_worker.audio import AudioLimits, decode
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Transcribe, Window
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions

FOLDER = Path(__file__).parents[2] / "deploy" / "demo_hearing"
TALKS: list[dict[str, Any]] = json.loads((FOLDER / "recordings" / "talks.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A model this small gains little from a second thread, and loses much where other tests want it too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def engine() -> Engine:
    model = load_model(FOLDER / "model", LoadOptions(torch.device("cpu"), torch.float32))
    return Engine(model, EngineConfig(page_size=32, max_batch=4))  # type: ignore[arg-type]


def samples(talk: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    decoded = decode((FOLDER / "recordings" / talk["file"]).read_bytes(), AudioLimits())
    return (decoded / 32768).astype(np.float32)


@pytest.fixture(scope="module")
def heard(engine: Engine) -> list[Window]:
    return list(hear(engine, [samples(talk) for talk in TALKS], Transcribe()))


def test_every_recording_is_written_down_word_for_word(heard: list[Window]) -> None:
    for talk, window in zip(TALKS, heard, strict=True):
        assert words(window.text) == words(talk["text"])
        assert window.language == talk["language"]
        assert window.no_speech < 0.1


def test_segments_begin_and_end_with_the_sentences(heard: list[Window]) -> None:
    for talk, window in zip(TALKS[1:], heard[1:], strict=True):  # Whisper puts a single sentence's start at 0
        for start, end in talk["times"]:
            assert min(abs(segment.start - start) for segment in window.segments) < 0.1
            assert min(abs(segment.end - end) for segment in window.segments) < 0.1


def test_words_have_times_within_their_sentence(engine: Engine) -> None:
    talks = TALKS[1:4]
    found = hear(engine, [samples(talk) for talk in talks], Transcribe(words=True))
    for talk, window in zip(talks, found, strict=True):
        assert [words(word.word) for word in window.words] == [[word] for word in words(talk["text"])]
        for word in window.words:
            assert any(start - 0.7 < word.start <= word.end < end + 0.3 for start, end in talk["times"])


def test_german_is_translated(engine: Engine) -> None:
    german = [talk for talk in TALKS if talk["language"] == "de"]
    found = hear(engine, [samples(talk) for talk in german], Transcribe(translate=True))
    assert [words(window.text) for window in found] == [words(talk["english"]) for talk in german]


def test_silence_has_no_words(engine: Engine) -> None:
    hiss = 1e-4 * np.random.default_rng(1).standard_normal(80_000).astype(np.float32)
    for window in hear(engine, [0 * hiss, hiss], Transcribe()):
        assert window.text == ""
        assert window.no_speech > 0.6


def test_the_files_are_small() -> None:
    assert (FOLDER / "model" / "model.safetensors").stat().st_size < 8_000_000
    assert sum(path.stat().st_size for path in (FOLDER / "recordings").iterdir()) < 300_000


def test_errors_are_the_words_to_replace_insert_and_remove() -> None:
    assert errors(words("Wait, two seconds!"), words("wait two seconds")) == 0
    assert errors(words("wait ten"), words("wait two seconds")) == 2
    assert errors([], ["a", "b"]) == 2
    assert errors(["a", "b"], []) == 2
