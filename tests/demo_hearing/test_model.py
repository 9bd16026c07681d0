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
SHORT = [talk for talk in TALKS if talk["times"][-1][1] < 29]


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
    return list(hear(engine, [samples(talk) for talk in SHORT], Transcribe(words=True)))


def test_every_recording_is_written_down_word_for_word(heard: list[Window]) -> None:
    for talk, window in zip(SHORT, heard, strict=True):
        assert window.text == talk["text"]
        assert window.language == talk["language"]
        assert window.no_speech < 0.1


def test_segments_and_words_are_where_they_are_said(heard: list[Window]) -> None:
    for talk, window in zip(SHORT, heard, strict=True):
        assert len(window.segments) == len(talk["times"])
        for segment, (start, end) in zip(window.segments, talk["times"], strict=True):
            assert segment.start == pytest.approx(start, abs=0.3)
            assert segment.end == pytest.approx(end, abs=0.3)
        spoken = [word.word.strip() for word in window.words]
        assert spoken == talk["text"].split()
        for word in window.words:
            assert any(start - 0.4 <= word.start <= word.end <= end + 0.4 for start, end in talk["times"])


def test_german_is_translated(engine: Engine) -> None:
    german = [talk for talk in SHORT if talk["language"] == "de"]
    found = hear(engine, [samples(talk) for talk in german], Transcribe(translate=True))
    assert [window.text for window in found] == [talk["english"] for talk in german]


def test_noise_and_silence_have_no_words(engine: Engine) -> None:
    noise = np.random.default_rng(1).standard_normal(80_000).astype(np.float32)
    for window in hear(engine, [np.zeros(80_000, np.float32), 0.01 * noise], Transcribe()):
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
