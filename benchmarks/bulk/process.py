"""Runs `stoop bulk` as a process that can be killed and started again, and draws images for it."""

import io
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from PIL import Image

__all__ = ["BulkProcess", "draw_images"]

_ENDED: Final = re.compile(r"^([\d,]+)(?: of |, \d)")
_SIDE: Final = 96


class BulkProcess:
    """A run that prints its progress ten times a second."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], command: str = "bulk") -> None:
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stoop", command, *arguments, "--every", "0.1"],
            env={**os.environ, **environment, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []

    def wait_for(self, text: str) -> None:
        """Read its progress until a line contains this text."""
        for line in self._lines():
            if text in line:
                return
        raise AssertionError(f"no line contains {text!r}: {self.lines}")

    def wait_until(self, ended: int) -> int:
        """Read its progress until at least `ended` rows have ended; return their number."""
        for line in self._lines():
            progress = _ENDED.match(line)
            if progress and int(progress[1].replace(",", "")) >= ended:
                return int(progress[1].replace(",", ""))
        raise AssertionError(f"the run ended before: {self.lines}")

    def kill(self) -> None:
        """Kill it with -9, and wait until it is gone."""
        self.process.kill()
        self.process.communicate()

    def finish(self) -> tuple[int, str, str]:
        """Wait for its end; return its exit code, stdout and stderr."""
        assert self.process.stdout is not None
        with self.process, ThreadPoolExecutor(1) as threads:
            out = threads.submit(self.process.stdout.read)
            for _ in self._lines():  # `communicate` would lose lines that arrived together with the last one read
                pass
        return self.process.returncode, out.result(), "".join(self.lines)

    def _lines(self) -> Iterator[str]:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            yield line


def draw_images(count: int, bad: int) -> Iterator[tuple[str, bytes]]:
    """Yield `count` names and different images of a few coloured shapes; `bad` of them are broken.

    The broken ones are, in turn, a text, a truncated file, an empty file, and an image of over a million pixels, which
    exceeds the worker's limit.
    """
    random_ = random.Random(5)
    broken = set(random_.sample(range(count), bad))
    for number in range(count):
        encoded = _draw(random_, (_SIDE, _SIDE))
        if number in broken:
            kind = sorted(broken).index(number) % 4
            encoded = [b"this is no image", encoded[: len(encoded) // 2], b"", _draw(random_, (1200, 1000))][kind]
        yield f"photo-{number:06}.png", encoded


def _draw(random_: random.Random, size: tuple[int, int]) -> bytes:
    image = Image.new("RGB", size, (random_.randrange(256), random_.randrange(256), random_.randrange(256)))
    for _ in range(3):
        x, y = random_.randrange(size[0] - 16), random_.randrange(size[1] - 16)
        image.paste((random_.randrange(256), random_.randrange(256), random_.randrange(256)), (x, y, x + 16, y + 16))
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()
