"""The speech that a training is made from: each sentence spoken by a voice, and the times of its words.

    python -m deploy.demo_hearing.bank bank --megabytes 24

writes `clips.json`, `speech.bin` (see `codec`) and `tokenizer.json`. It needs espeak-ng.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.demo_hearing.codec import pack, unpack

__all__ = ["ACCENTS", "HELD_OUT_VOICES", "Bank", "Clip", "say"]

ACCENTS = {"en": ("en-us", "en-us", "en", "en-gb-x-rp", "en-us-nyc", "en-029"), "de": ("de",)}
_VOICES = [
    "m1",
    "m2",
    "m3",
    "m4",
    "m6",
    "m7",
    "f1",
    "f2",
    "f3",
    "f4",
    "Alex",
    "Alicia",
    "Andrea",
    "Andy",
    "Lee",
    "Mario",
    "Michael",
    "adam",
    "anika",
    "antonio",
    "belinda",
    "benjamin",
    "caleb",
    "david",
    "edward",
    "grandma",
    "grandpa",
    "gustave",
    "linda",
    "marcelo",
    "max",
    "michel",
    "pablo",
    "paul",
    "rob",
    "steph",
    "travis",
    "victor",
    "klatt",
    "klatt2",
    "klatt4",
    "quincy",
    "shelby",
]
HELD_OUT_VOICES = ["m5", "f5", "Annie", "steph2", "john", "norbert", "klatt3"]
_MELS = 80
_RATE = 16_000
_TEXTS = 20_000  # sentences that the tokenizer is trained on
_GERMAN = 0.4


@dataclass(frozen=True, slots=True)
class Clip:
    """One sentence: its samples from `offset` on, its ids, the sample at which each id's word starts.

    `starts` is empty where that is not known. `translation` are the ids of the English sentence.
    """

    language: str
    offset: int
    size: int
    ids: list[int]
    starts: list[int]
    translation: list[int]


@dataclass(frozen=True, slots=True)
class Bank:
    """All clips, their samples one behind the other, the mel filters (201, mels), and control ids by name."""

    clips: list[Clip]
    samples: npt.NDArray[np.float32]
    filters: npt.NDArray[np.float32]
    controls: dict[str, int]

    @classmethod
    def read(cls, folder: Path) -> "Bank":
        """Read a folder."""
        return replace(cls.read_clips(folder), samples=unpack((folder / "speech.bin").read_bytes()))

    @classmethod
    def read_clips(cls, folder: Path) -> "Bank":
        """Read a folder without its samples."""
        document: dict[str, Any] = json.loads((folder / "clips.json").read_text(encoding="utf-8"))
        clips = [Clip(*row) for row in document["clips"]]
        filters = np.array(document["filters"], np.float32)
        return cls(clips, np.zeros(0, np.float32), filters, document["controls"])


def say(voices: Any, text: str, language: str, variants: Iterable[str], random: Random) -> Any:
    """Speak a text with any of these variants of a voice."""
    voice = f"{random.choice(ACCENTS[language])}+{random.choice(list(variants))}"
    speed, pitch, tone = random.randint(120, 250), random.randint(20, 80), random.randint(25, 80)
    return voices.speak(text, voice, speed=speed, pitch=pitch, tone=tone)


def _starts(text: str, offsets: list[tuple[int, int]], words: Iterable[tuple[int, int]]) -> list[int]:
    """Return the sample at which the word of each token starts; the text of the tokens begins with a space."""
    found = []
    for _, end in offsets:
        # punctuation belongs to the word before it
        last = max(0, end - 2)
        found.append(max((when for at, when in words if at <= last), default=0))
    return found


def _checked(starts: list[int], size: int) -> list[int]:
    """Return the starts of words in a clip, or none if they cannot be right: espeak-ng's are sometimes late."""
    first = min(starts)
    if first > 0.1 * _RATE and max(starts) < size - 200:
        starts = [start - first for start in starts]
    bounds = [*sorted(set(starts)), size]
    lengths = [after - before for before, after in pairwise(bounds)]
    sound = bounds[0] <= 0.1 * _RATE and min(lengths) >= 0.03 * _RATE and max(lengths) <= _RATE
    return starts if sound else []


def make(folder: Path, megabytes: float, seed: int) -> None:
    """Speak sentences until their file is nearly full, and write all files."""
    from deploy.demo_hearing.lessons import FIXED, is_held_out, sentence
    from deploy.demo_hearing.tokens import demo_tokenizer
    from deploy.demo_hearing.voices import Voices
    from stoop_worker.audio.mel import _filters

    random, voices = Random(seed), Voices()
    tokenizer, controls = demo_tokenizer(sentence(Random(seed + n)) for n in range(_TEXTS))
    clips: list[Clip] = []
    parts: list[npt.NDArray[np.float32]] = []
    offset, most, rate = 0, megabytes * 1e6, 4200.0
    while offset / _RATE * rate < most:
        lesson = random.choice(FIXED) if random.random() < 0.02 else sentence(random)
        if is_held_out(lesson):
            continue
        language = "de" if random.random() < _GERMAN else "en"
        text = lesson.german if language == "de" else lesson.english
        spoken = say(voices, text, language, _VOICES, random)
        encoded = tokenizer.encode(f" {text}", add_special_tokens=False)
        clips.append(
            Clip(
                language,
                offset,
                len(spoken.samples),
                encoded.ids,
                _checked(_starts(text, encoded.offsets, spoken.starts), len(spoken.samples)),
                tokenizer.encode(f" {lesson.english}", add_special_tokens=False).ids,
            )
        )
        level = np.abs(spoken.samples).max()
        parts.append(spoken.samples * (0.5 / level))
        offset += len(spoken.samples)
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "controls": controls,
        "filters": [[round(float(value), 9) for value in row] for row in _filters(_MELS)],
        "clips": [list(asdict(clip).values()) for clip in clips],
    }
    (folder / "clips.json").write_text(json.dumps(document, separators=(",", ":")))
    (folder / "speech.bin").write_bytes(pack(np.concatenate(parts)))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    print(f"{len(clips)} clips, {offset / _RATE / 3600:.2f} hours")


def main() -> None:
    """Make a bank."""
    parser = argparse.ArgumentParser(prog="deploy.demo_hearing.bank", description="Speak the sentences of a training.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    make(arguments.folder, arguments.megabytes, arguments.seed)


if __name__ == "__main__":
    main()
