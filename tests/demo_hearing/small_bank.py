"""A bank of tones that stand for speech, with ids of real sentences."""

import json
from pathlib import Path
from random import Random

import numpy as np

from deploy.demo_hearing.bank import Bank, Clip
from deploy.demo_hearing.lessons import sentence
from deploy.demo_hearing.tokens import demo_tokenizer
from stoop_worker.audio.mel import _filters

__all__ = ["small_bank"]

_SECOND = 16_000


def small_bank(folder: Path, count: int = 24) -> Bank:
    """Return a bank, and write what `export` reads of one."""
    lessons = [sentence(Random(seed)) for seed in range(300)]
    tokenizer, controls = demo_tokenizer(lessons)
    clips = []
    for number, lesson in enumerate(lessons[:count]):
        language = ("en", "de")[number % 2]
        text = lesson.german if language == "de" else lesson.english
        ids, english = (tokenizer.encode(f" {each}", add_special_tokens=False).ids for each in (text, lesson.english))
        starts = np.linspace(0, _SECOND // 2, len(ids)).astype(int).tolist() if number % 3 else []
        clips.append(Clip(language, number * _SECOND, _SECOND, ids, starts, english))
    time = np.arange(count * _SECOND) / _SECOND
    samples = (0.3 * np.sin(2 * np.pi * (200 + 40 * np.floor(time)) * time)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clips.json").write_text(json.dumps({"controls": controls}))
    tokenizer.save(str(folder / "tokenizer.json"))
    return Bank(clips, samples, _filters(80), controls)
