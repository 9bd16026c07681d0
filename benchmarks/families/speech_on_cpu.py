"""Measures Whisper on a CPU by turns with CTranslate2 in int8, which is what faster-whisper runs.

    python -m benchmarks.families.speech_on_cpu --threads 1 2 --in-flight 1 8 --rounds 3

The model is as large as Whisper tiny, with random weights; the windows have 30 s and 100 tokens each. It needs
transformers and the package faster-whisper, which the project does not install. The engine runs in float32.

First the engine's tokens are compared with those that transformers would choose, and with those of CTranslate2 in
float32. Cases alternate. A rate is the seconds of sound in a second of processor time of all threads, or of `wall`
time, which other work on the machine stretches. The last lines are a table; --out writes JSON.
"""

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import tokenizers
import torch

from benchmarks.engine.check import WrongAnswers
from benchmarks.families import speech
from benchmarks.families.languages import WHISPER_CONTROLS, words_of, write_language
from benchmarks.families.opened import Opened, open_model
from benchmarks.families.run import arguments_of
from benchmarks.families.sizes import TINY
from benchmarks.families.stepping import Stepping
from benchmarks.figures import machine, write_json

__all__ = ["main"]

_MODEL: Final = "whisper-39m"
_SECONDS, _TOKENS, _WINDOWS = 30, 100, 8
_LEAST_WINDOWS: Final = 2  # in a round
_CHECKED: Final = 2
_LATEST_START: Final = 50  # of the first timestamp, as in both engines by default
_OURS, _OTHER = "engine, float32", "CTranslate2, int8"

_Tokens = list[tuple[int, ...]]
"""Those of each window."""

_Run = Callable[[int], _Tokens]
"""Transcribes this many windows together."""


class _Rate(NamedTuple):
    processor: float
    wall: float


def main(argv: list[str] | None = None) -> None:
    """Check, measure, print and write the figures."""
    options = _parser().parse_args(argv)
    model = _MODEL + TINY * options.tiny
    opened = open_model(arguments_of([model, "--device", "cpu", "--dtype", "fp32"]))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = _converted(Path(name), opened)
        ours = _Ours(opened)
        checked = speech.check(opened)
        _check_other(ours, _Other(folder, opened, "float32", threads=1))
        opened.reference = None
        found: dict[str, list[_Rate]] = {}
        for threads in options.threads:
            torch.set_num_threads(threads)
            cases: dict[str, _Run] = {_OURS: ours, _OTHER: _Other(folder, opened, "int8", threads=threads)}
            for load in options.in_flight:
                _measure(found, cases, threads, load, options.rounds)
    _print(found)
    figures = {name: [rate._asdict() for rate in rates] for name, rates in found.items()}
    write_json(
        {"machine": machine("cpu"), "checked": asdict(checked), "times real time": figures}, options.out, "speech-cpu"
    )


class _Ours:
    """The engine; a request's window is new to its cache, although its sound may not be."""

    def __init__(self, opened: Opened) -> None:
        self._stepping = Stepping(opened.engine)
        self._windows = speech.windows_of(opened, _WINDOWS)
        self._asks = speech.asks_of(_TOKENS)
        self._numbers = count()

    def __call__(self, windows: int) -> _Tokens:
        """Transcribe windows, the first of them first."""
        asks = (next(self._asks) for _ in range(windows))
        requests = [speech.request_of(f"window-{next(self._numbers)}", ask, self._windows) for ask in asks]
        answers = self._stepping.answers(requests)
        return [answer.window.tokens for answer in answers if answer.window is not None]


class _Other:
    """CTranslate2, which draws by the same rules of timestamps, and does not end before it has all tokens."""

    def __init__(self, folder: Path, opened: Opened, compute_type: str, *, threads: int) -> None:
        self._library: Any = importlib.import_module("ctranslate2")
        self._model = self._library.models.Whisper(
            str(folder), device="cpu", compute_type=compute_type, intra_threads=threads, inter_threads=1
        )
        self._frames = [window.frames for window in speech.windows_of(opened, _WINDOWS)]
        first = words_of(opened.document).stop
        self._prompt = [first + WHISPER_CONTROLS.index(each) for each in speech.START]
        self._end = first
        self._next = 0

    def __call__(self, windows: int) -> _Tokens:
        """Transcribe windows in one batch, the first of them first."""
        frames = np.stack([self._frames[(self._next + each) % _WINDOWS] for each in range(windows)])
        self._next += windows
        made = self._model.generate(
            self._library.StorageView.from_array(frames),
            [self._prompt] * windows,
            beam_size=1,
            max_length=2 * _TOKENS,  # of which it draws half at most
            suppress_blank=False,
            suppress_tokens=[self._end],
            max_initial_timestamp_index=_LATEST_START,
        )
        return [tuple(each.sequences_ids[0]) for each in made]


def _converted(folder: Path, opened: Opened) -> Path:
    """Write the model as CTranslate2 reads it."""
    loader = importlib.import_module("ctranslate2.converters.transformers").WhisperLoader()
    specification = loader.get_model_spec(opened.reference)
    write_language(folder, opened.document)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    specification.register_vocabulary([backend.id_to_token(token) for token in range(opened.document["vocab_size"])])
    specification.validate()
    specification.optimize()
    specification.save(str(folder))
    return folder


def _check_other(ours: _Ours, other: _Other) -> None:
    """Raise `WrongAnswers` unless both draw the same tokens in the same precision."""
    wanted, found = ours(_CHECKED), other(_CHECKED)
    if wanted != found:
        raise WrongAnswers(f"the engine draws {wanted}, and CTranslate2 in float32 {found}")


def _measure(found: dict[str, list[_Rate]], cases: Mapping[str, _Run], threads: int, load: int, rounds: int) -> None:
    """Time the cases alternately; the first round warms them up."""
    turns = max(1, _LEAST_WINDOWS // load)
    for number in range(rounds + 1):
        for name, run in cases.items():
            processor, wall = time.process_time(), time.perf_counter()
            for _ in range(turns):
                _check_lengths(name, run(load))
            processor, wall = time.process_time() - processor, time.perf_counter() - wall
            if number:
                sound = _SECONDS * load * turns
                found.setdefault(f"{name}, {load} in flight, {threads} threads", []).append(
                    _Rate(sound / processor, sound / wall)
                )


def _check_lengths(name: str, tokens: Sequence[tuple[int, ...]]) -> None:
    if {len(each) for each in tokens} != {_TOKENS}:
        raise WrongAnswers(f"{name}: windows have {[len(each) for each in tokens]} tokens")


def _print(found: Mapping[str, Sequence[_Rate]]) -> None:
    print(f"{'times real time, median (least to most)':48}{'a core':>24}{'wall':>24}")
    for name, rates in found.items():
        print(f"{name:48}{_spread([rate.processor for rate in rates]):>24}{_spread([rate.wall for rate in rates]):>24}")


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, _WINDOWS], choices=[1, 2, 4, _WINDOWS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the command")
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser


if __name__ == "__main__":
    main()
