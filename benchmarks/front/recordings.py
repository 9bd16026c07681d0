"""Measures the cost of an hour of audio at the front of a worker: decoding and features.

    python -m benchmarks.front.recordings --seconds 600 --rounds 3

PyAV makes a file of each format from chirps, pauses and noise, and the formats take turns. The figures are medians,
scaled to an hour of audio: seconds of processor time, then of wall-clock time. `whole` is decoding and the features of
one window after another.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.families.hour import recording
from benchmarks.figures import machine, write_json
from stoop_worker.audio import AudioLimits, Cutting, MelGeometry, decode, packed_seconds, parts

__all__ = ["main"]

_FORMATS: Final = {
    "mp3": ("mp3", "libmp3lame", 44_100, "stereo"),
    "m4a": ("mp4", "aac", 44_100, "stereo"),
    "flac": ("flac", "flac", 44_100, "stereo"),
    "opus": ("ogg", "libopus", 48_000, "stereo"),
    "wav": ("wav", "pcm_s16le", 44_100, "stereo"),
    "speech": ("wav", "pcm_s16le", 16_000, "mono"),
}
_HOUR: Final = 3600
_PIECE: Final = 100
_LIMITS: Final = AudioLimits(max_bytes=1 << 30)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Measure and print; return the figures."""
    arguments = _parser().parse_args(argv)
    pieces = max(1, arguments.seconds // _PIECE)
    files = {name: recording(*form, pieces) for name, form in _FORMATS.items()}
    works: dict[str, Callable[[bytes], object]] = {
        "packets": lambda file: packed_seconds(file, _LIMITS),
        "decode": lambda file: decode(file, _LIMITS),
        "whole": lambda file: list(parts(file, _LIMITS, MelGeometry(arguments.mels), Cutting(in_windows=True))),
    }
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.rounds):
        for kind, file in files.items():
            for name, work in works.items():
                wall, processor = time.perf_counter(), time.process_time()
                work(file)
                spent = time.process_time() - processor, time.perf_counter() - wall
                for column, seconds in zip((name, f"{name} wall"), spent, strict=True):
                    found[kind][column].append(seconds * _HOUR / (pieces * _PIECE))
    medians = {kind: {name: statistics.median(each) for name, each in times.items()} for kind, times in found.items()}
    print(f"{'':6}" + "".join(f"{column:>14}" for column in medians["mp3"]))
    for kind, times in medians.items():
        print(f"{kind:6}" + "".join(f"{seconds:>14.2f}" for seconds in times.values()))
    document = {"kind": "recordings", "machine": machine("cpu"), "seconds_an_hour": medians}
    write_json(document, arguments.out, "front-recordings")
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="length of each file, at least 100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mels", type=int, default=128)
    parser.add_argument("--out", type=Path, help="file for the figures; by default in the folder $OUT")
    return parser


if __name__ == "__main__":
    main()
