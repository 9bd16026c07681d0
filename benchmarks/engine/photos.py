"""Draws photo-like JPEGs that all differ, on all cores; `make_photos` returns their bytes.

    python -m benchmarks.engine.photos --into /tmp/photos --count 1000

Each has gradients, shapes and grain, so that decoding it costs as much as a photo: 850 x 600 at quality 90 is about
100 kB. Photos that are already in the folder are only read.
"""

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw

__all__ = ["LARGE", "SMALL", "Format", "Photos", "draw_photo", "make_photos"]

_GRAIN = 3.0  # standard deviation in levels
_SHAPES = 24
_MOST_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Format:
    """Size in pixels and JPEG quality."""

    width: int
    height: int
    quality: int = 90


Photos = dict[Format, list[bytes]]
"""JPEGs by shape and number."""

LARGE = Format(850, 600)
SMALL = Format(300, 260)  # of one crop


def make_photos(count: int, shape: Format, folder: Path, *, processes: int | None = None) -> list[bytes]:
    """Return the first `count` photos of a shape, drawing those that the folder lacks."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [number for number in range(count) if not _path(folder, shape, number).exists()]
    _draw_all(missing, shape, folder.resolve(), processes or min(_cores(), _MOST_PROCESSES))
    return [_path(folder, shape, number).read_bytes() for number in range(count)]


def draw_photo(number: int, shape: Format) -> bytes:
    """Return one photo as a JPEG; the number is its random seed."""
    random = np.random.default_rng([shape.width, shape.height, number])
    picture = _gradient(random, shape)
    draw = ImageDraw.Draw(picture)
    for _ in range(_SHAPES):
        _draw_shape(draw, random, shape)
    # grain like a camera's: blotches and single pixels
    grain = random.normal(0, _GRAIN, (shape.height, shape.width, 1)).astype(np.float32)
    grain = grain + random.normal(0, _GRAIN / 2, (shape.height, shape.width, 3)).astype(np.float32)
    pixels = np.clip(np.asarray(picture, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    encoded = io.BytesIO()
    Pillow.fromarray(pixels).save(encoded, "JPEG", quality=shape.quality)
    return encoded.getvalue()


def _gradient(random: np.random.Generator, shape: Format) -> Pillow.Image:
    coarse = random.integers(20, 236, (4, 5, 3), dtype=np.uint8)
    return Pillow.fromarray(coarse).resize((shape.width, shape.height), Pillow.Resampling.BICUBIC)


def _draw_shape(draw: ImageDraw.ImageDraw, random: np.random.Generator, shape: Format) -> None:
    x, y = random.integers(0, shape.width), random.integers(0, shape.height)
    side = int(random.integers(8, max(9, shape.height // 4)))
    colour = tuple(int(level) for level in random.integers(0, 256, 3))
    box = (int(x) - side, int(y) - side, int(x) + side, int(y) + side)
    if random.random() < 0.5:
        draw.ellipse(box, fill=colour)
    else:
        draw.rectangle(box, fill=colour)


def _draw_all(numbers: list[int], shape: Format, folder: Path, processes: int) -> None:
    """Draw in processes that import only this module."""
    cuts = np.linspace(0, len(numbers), min(processes, len(numbers)) + 1).astype(int).tolist()
    running = [_start(numbers[first:end], shape, folder) for first, end in pairwise(cuts)]
    failed = [process.returncode for process in running if process.wait()]
    if failed:
        raise SystemExit(f"photos: a process ended with {failed[0]}")


def _start(numbers: list[int], shape: Format, folder: Path) -> "subprocess.Popen[bytes]":
    size = ("--width", shape.width, "--height", shape.height, "--quality", shape.quality)
    words = ("--into", folder, *size, "--first", numbers[0], "--count", numbers[-1] - numbers[0] + 1)
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.engine.photos", *map(str, words)], cwd=Path(__file__).parents[2]
    )


def _write(numbers: Iterable[int], shape: Format, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        path = _path(folder, shape, number)
        if not path.exists():
            half = path.with_suffix(".half")
            half.write_bytes(draw_photo(number, shape))
            half.rename(path)


def _path(folder: Path, shape: Format, number: int) -> Path:
    return folder / f"{shape.width}x{shape.height}-q{shape.quality}-{number:06d}.jpg"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> None:
    """Draw a range of photos into a folder, in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument("--width", type=int, default=LARGE.width)
    parser.add_argument("--height", type=int, default=LARGE.height)
    parser.add_argument("--quality", type=int, default=LARGE.quality)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.count)
    _write(numbers, Format(arguments.width, arguments.height, arguments.quality), arguments.into)


if __name__ == "__main__":
    main()
