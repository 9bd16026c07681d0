"""Measures how well a Whisper transcribes held-out speech, through the engine.

python -m deploy.demo_hearing.exam deploy/demo_hearing/model --talks 20

prints the word error rate of each language and noise, of translations, and how far times are off. It needs espeak-ng.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np
import torch

from deploy.demo_hearing.talks import Talk, draw_talk, with_noise
from deploy.demo_hearing.voices import Voices
from stoop_worker.audio import Mel, log_mel
from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.engine import Engine
from stoop_worker.engine.request import Finished, Request, Sampling, Transcribe, Window
from stoop_worker.models.families import load_model
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.whisper.family import WhisperFamily

__all__ = ["errors", "hear", "words"]

_FRAMES = 3000
_SENTENCES = 9  # of a talk, which takes most of a window
_NOISES = (None, 20.0, 10.0, 5.0)
_GREEDY = Sampling(temperature=0.0, max_tokens=224)


def words(text: str) -> list[str]:
    """Return the words of a text without case and punctuation."""
    return re.findall(r"\w+", text.lower())


def errors(heard: Sequence[str], said: Sequence[str]) -> int:
    """Return the least number of words to replace, insert or remove (Levenshtein's distance)."""
    row = list(range(len(said) + 1))
    for count, word in enumerate(heard, start=1):
        corner, row[0] = row[0], count
        for place, other in enumerate(said, start=1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (word != other))
    return row[-1]


def hear(engine: Engine, samples: Sequence[np.ndarray], task: Transcribe) -> Iterator[Window]:
    """Return the engine's transcripts of recordings of less than 30 seconds."""
    found: dict[str, Window] = {}
    for number, each in enumerate(samples):
        features = log_mel(np.concatenate((each, np.zeros(480, np.float32))), 80)[:, : len(each) // 160]
        content = min(_FRAMES, features.shape[1])
        frames = np.zeros((80, _FRAMES), np.float32)
        frames[:, :content] = features[:, :content]
        engine.submit(Request(str(number), task, (Mel.of(frames, content),), _GREEDY))
    while not engine.idle:
        for output in engine.step():
            assert isinstance(output, Finished), output
            if output.window is not None:
                found[output.id] = output.window
    return (found[str(number)] for number in range(len(samples)))


def _report(engine: Engine, talks: list[Talk], decibels: float | None) -> dict[str, object]:
    language = talks[0].language
    samples = [
        talk.samples if decibels is None else with_noise(talk.samples, decibels, n) for n, talk in enumerate(talks)
    ]
    heard = list(hear(engine, samples, Transcribe()))
    said = sum(len(words(talk.text)) for talk in talks)
    wrong = sum(errors(words(window.text), words(talk.text)) for window, talk in zip(heard, talks, strict=True))
    off = [
        abs(found - true)
        for window, talk in zip(heard, talks, strict=True)
        if len(window.segments) == len(talk.times)
        for segment, times in zip(window.segments, talk.times, strict=True)
        for found, true in zip((segment.start, segment.end), times, strict=True)
    ]
    report: dict[str, object] = {
        "language": language,
        "noise": "none" if decibels is None else f"{decibels:g} dB below",
        "words": said,
        "word error rate %": round(100 * wrong / said, 2),
        "language found %": round(100 * mean(window.language == language for window in heard), 1),
        "times off by s": round(mean(off), 3) if off else None,
    }
    if language == "de" and decibels is None:
        translated = list(hear(engine, samples, Transcribe(translate=True)))
        said = sum(len(words(talk.english)) for talk in talks)
        wrong = sum(errors(words(each.text), words(talk.english)) for each, talk in zip(translated, talks, strict=True))
        report["word error rate of the translation %"] = round(100 * wrong / said, 2)
    return report


def main() -> None:
    """Sit the exam."""
    parser = argparse.ArgumentParser(prog="deploy.demo_hearing.exam", description="Measure the demo's Whisper.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--talks", type=int, default=20, help="recordings of each language")
    parser.add_argument("--seed", type=int, default=1000)
    arguments = parser.parse_args()
    model = load_model(arguments.model, LoadOptions(torch.device("cpu"), torch.float32))
    assert isinstance(model, WhisperFamily)
    engine = Engine(model, EngineConfig(page_size=32, max_batch=8, prefix_cache=False))
    random, voices = Random(arguments.seed), Voices()
    for language in ("en", "de"):
        talks = [draw_talk(voices, random, language, _SENTENCES) for _ in range(arguments.talks)]
        for decibels in _NOISES:
            print(json.dumps(_report(engine, talks, decibels)), flush=True)


if __name__ == "__main__":
    main()
