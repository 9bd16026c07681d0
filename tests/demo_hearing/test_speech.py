"""The speech that trains the demo's Whisper."""

from random import Random

import numpy as np
import pytest
import torch

from deploy.demo_hearing import codec
from deploy.demo_hearing.bank import Bank
from deploy.demo_hearing.lessons import FIXED, is_held_out, sentence
from deploy.demo_hearing.plans import RATE, Planner
from deploy.demo_hearing.windows import Sound, batch_of
from stoop_worker.audio import log_mel
from tests.demo_hearing.small_bank import small_bank

_LAST_STAMP = 1500


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Bank:
    return small_bank(tmp_path_factory.mktemp("bank"))


def test_some_sentences_are_kept_for_the_exam_but_no_single_words() -> None:
    drawn = {sentence(Random(seed)) for seed in range(3000)}
    held_out = {lesson for lesson in drawn if is_held_out(lesson)}
    assert 0.05 < len(held_out) / len(drawn) < 0.2
    assert not held_out & set(FIXED)
    assert min(len(lesson.english.split()) for lesson in held_out) > 2


def test_german_adjectives_agree_with_their_nouns() -> None:
    drawn = {lesson.english: lesson.german for lesson in (sentence(Random(seed)) for seed in range(30_000))}
    assert drawn["There is a red circle."] == "Es gibt einen roten Kreis."
    assert drawn["There is a red square."] == "Es gibt ein rotes Quadrat."
    assert drawn["Is there an orange star?"] == "Gibt es einen orange Stern?"
    assert drawn["How many green rings are there?"] == "Wie viele grüne Ringe gibt es?"


def test_packed_samples_come_back_nearly() -> None:
    time = np.arange(40_001) / RATE
    samples = (0.4 * np.sin(2 * np.pi * 300 * time) * np.sin(2 * np.pi * 3 * time)).astype(np.float32)
    packed = codec.pack(samples)
    found = codec.unpack(packed)
    assert len(packed) < len(samples)
    assert found.shape == samples.shape
    assert np.mean((found - samples) ** 2) < 0.01 * np.mean(samples**2)


def test_every_window_is_written_down_by_whispers_rules(bank: Bank) -> None:
    controls, planner = bank.controls, Planner(bank)
    zero, seen = controls["0.00"], set()
    for seed in range(400):
        plan = planner.draw(Random(seed), 30.0)
        assert len(plan.ids) == len(plan.losses) == len(plan.spans)
        assert plan.content <= 30 * RATE
        begin = plan.ids.index(controls["startoftranscript"])
        assert not any(plan.losses[: begin + 1]), "nothing said before is learned"
        assert sum(plan.losses) <= 224, "a model writes no more for a window"
        written = plan.ids[begin + 3 :]
        assert written[-1] == controls["endoftext"]
        stamps = [token - zero for token in written if token >= zero]
        assert stamps == sorted(stamps)
        assert all(0 <= stamp <= _LAST_STAMP for stamp in stamps)
        seen.add(("stamps", bool(stamps), "cut", len(stamps) % 2, "clips", bool(plan.clips)))
    assert ("stamps", True, "cut", 1, "clips", True) in seen, "a window ends within a sentence"
    assert ("stamps", True, "cut", 1, "clips", False) in seen, "a window is silent"
    assert ("stamps", False, "cut", 0, "clips", True) in seen, "a window has no times"


def test_the_sound_of_a_batch_depends_on_its_seed_alone_and_ends_with_its_content(bank: Bank) -> None:
    sound, planner = Sound(bank, torch.device("cpu")), Planner(bank)
    batch = batch_of(planner, bank.controls["endoftext"], 3, 4, 4.0)
    frames = sound.frames(batch, 4.0)
    assert torch.equal(frames, sound.frames(batch, 4.0))
    assert frames.shape == (4, 80, 400)
    assert batch.labels_BS.shape == (4, 200)
    for row, content in enumerate(batch.content_B.tolist()):
        assert not frames[row, :, content // 160 :].any()
        assert frames[row, :, : content // 160].abs().max() > 0.1


def test_the_features_are_the_products(bank: Bank) -> None:
    sound = Sound(bank, torch.device("cpu"))
    samples = bank.samples[: 2 * RATE]
    found = sound.features(torch.from_numpy(samples)[None])[0].T
    assert np.abs(found.numpy() - log_mel(samples, 80)).max() < 1e-3
