"""Held-out speech: sentences that the training never met, in voices that it never met.

python -m deploy.demo_hearing.talks deploy/demo_hearing/recordings

writes the recordings of the demo, and `talks.json` with the words of each. It needs espeak-ng.
"""

import argparse
import io
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random

import av
import numpy as np
import numpy.typing as npt

from deploy.demo_hearing.bank import HELD_OUT_VOICES, say
from deploy.demo_hearing.lessons import Lesson, is_held_out, sentence
from deploy.demo_hearing.voices import RATE, Voices

__all__ = ["Talk", "draw_talk", "with_noise"]

_FILES = (
    ("one-command.wav", "pcm_s16le", "wav", "en", 1, None),
    ("questions.flac", "flac", "flac", "en", 2, None),
    ("scene.opus", "libopus", "ogg", "en", 4, None),
    ("noisy.opus", "libopus", "ogg", "en", 4, 12.0),
    ("numbers.mp3", "libmp3lame", "mp3", "en", 5, None),
    ("german.opus", "libopus", "ogg", "de", 4, None),
    ("german-noisy.opus", "libopus", "ogg", "de", 4, 12.0),
)
_BITS = 20_000


@dataclass(frozen=True, slots=True)
class Talk:
    """Some sentences in one voice, and the seconds at which each begins and ends."""

    language: str
    lessons: list[Lesson]
    times: list[tuple[float, float]]
    samples: npt.NDArray[np.float32]

    @property
    def text(self) -> str:
        """The sentences, in the language of the talk."""
        return " ".join(each.german if self.language == "de" else each.english for each in self.lessons)

    @property
    def english(self) -> str:
        """Its translation."""
        return " ".join(each.english for each in self.lessons)


def draw_talk(voices: Voices, random: Random, language: str, count: int) -> Talk:
    """Speak some held-out sentences."""
    variant = random.choice(HELD_OUT_VOICES)
    at, lessons, times, parts = 0.0, [], [], []
    while len(lessons) < count:
        lesson = sentence(random)
        if not is_held_out(lesson):
            continue
        silence = np.zeros(round(random.uniform(0.15, 0.9) * RATE), np.float32)
        text = lesson.german if language == "de" else lesson.english
        spoken = say(voices, text, language, (variant,), random).samples
        at += len(silence) / RATE
        times.append((round(at, 2), round(at + len(spoken) / RATE, 2)))
        at += len(spoken) / RATE
        lessons.append(lesson)
        parts += [silence, spoken * (0.4 / np.abs(spoken).max())]
    return Talk(language, lessons, times, np.concatenate([*parts, np.zeros(RATE // 3, np.float32)]))


def with_noise(samples: npt.NDArray[np.float32], decibels: float, seed: int) -> npt.NDArray[np.float32]:
    """Add noise that falls by 3 dB an octave, this much below the mean power of the speech."""
    spectrum = np.fft.rfft(np.random.default_rng(seed).standard_normal(len(samples)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))), len(samples))
    level = np.sqrt(np.mean(samples**2) / np.mean(noise**2)) * 10 ** (-decibels / 20)
    return (samples + level * noise).astype(np.float32)


def _encoded(samples: npt.NDArray[np.float32], codec: str, form: str) -> bytes:
    whole = (np.clip(samples, -1, 1) * 32767).astype(np.int16)[None]
    written = io.BytesIO()
    with av.open(written, "w", format=form) as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.layout = "mono"
        if codec == "libopus" or codec == "libmp3lame":
            stream.bit_rate = _BITS
        frame = av.AudioFrame.from_ndarray(whole, format="s16", layout="mono")
        frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
        resampler = av.AudioResampler(stream.format.name, "mono", stream.rate, frame_size=stream.frame_size or None)
        for each in (*resampler.resample(frame), *resampler.resample(None)):
            container.mux(stream.encode(each))
        container.mux(stream.encode(None))
    return written.getvalue()


def main() -> None:
    """Write the recordings of the demo."""
    parser = argparse.ArgumentParser(prog="deploy.demo_hearing.talks", description="Write the demo's recordings.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=20)
    arguments = parser.parse_args()
    random, voices, found = Random(arguments.seed), Voices(), []
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name, codec, form, language, count, decibels in _FILES:
        talk = draw_talk(voices, random, language, count)
        samples = talk.samples if decibels is None else with_noise(talk.samples, decibels, arguments.seed)
        (arguments.folder / name).write_bytes(_encoded(samples, codec, form))
        document = {"file": name, "language": language, "text": talk.text, "english": talk.english}
        found.append({**document, "times": talk.times})
    (arguments.folder / "talks.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
