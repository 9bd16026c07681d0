"""Measures again what PERFORMANCE.md says of a GPU, in as many runs as there is time for.

    python -m benchmarks.gpu --list
    python -m benchmarks.gpu tests moondream2 moondream3 --seconds 540 --out figures/

Each part is a command with a limit of its own, so one that hangs costs no other part its time. A part whose limit does
not fit into the rest of the time is left out; the next run with the same folder skips the parts that have ended well.
The end of each part's output is printed, and all of it goes to a file in the folder. The last lines are a table of
parts. `python -m benchmarks.report` turns the figures in the folder into tables and plots.
"""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["PARTS", "Part", "main"]

_TAIL_LINES = 12

_ENGINE = "-m benchmarks.engine.run"
_FAMILY = "-m benchmarks.families.run"
_FP8 = "--engine fp8_linears=True stall_crops=126 crop_budget=126"


@dataclass(frozen=True, slots=True)
class Part:
    """Arguments of the Python that runs the part, and the most seconds it may take on an H200."""

    words: str
    seconds: int


PARTS: Final[Mapping[str, Part]] = {
    "tests": Part(
        "-m pytest -q -m gpu -o addopts=--strict-markers -W ignore::pytest.PytestConfigWarning tests/gpu", 400
    ),
    "moondream2": Part(f"{_ENGINE} direct cot decode --on-device --concurrency 1,64", 120),
    "moondream2-skills": Part(f"{_ENGINE} caption detect mixed same-image --on-device --concurrency 64", 90),
    "moondream2-loads": Part(f"{_ENGINE} direct --on-device --concurrency 1,4,16,64,256", 120),
    "moondream2-arrivals": Part(f"{_ENGINE} direct --on-device --open-loop --rate 30 --rate-seconds 8", 120),
    "moondream2-fp8-cache": Part(f"{_ENGINE} decode --on-device --concurrency 64 --engine fp8_cache=True", 60),
    "moondream2-crops": Part(
        f"{_ENGINE} direct cot --on-device --concurrency 64 --engine stall_crops=189 crop_budget=189", 90
    ),
    "moondream2-jpegs": Part(f"{_ENGINE} direct --jpegs-on-gpu --concurrency 1,64", 100),
    "moondream2-fp8": Part(f"{_ENGINE} direct cot --on-device --concurrency 1,64 {_FP8}", 120),
    "moondream2-queue": Part("-m benchmarks.queue.through_queue direct --jpegs-on-gpu", 150),
    "moondream2-profile": Part("-m benchmarks.engine.profile direct --concurrency 64 --on-device", 90),
    "moondream2-memory": Part("-m benchmarks.engine.memory --requests 3000", 120),
    "moondream2-adapters": Part(f"{_ENGINE} decode --concurrency 1,16,64 --adapters 8", 90),
    "moondream3": Part(f"{_ENGINE} direct cot decode --model full3 --on-device --concurrency 1,64", 200),
    "moondream3-fp8": Part(f"{_ENGINE} direct cot --model full3-fp8 --on-device --concurrency 1,64 {_FP8}", 150),
    "moondream3-adapters": Part(
        f"{_ENGINE} direct decode --model full3 --on-device --concurrency 16,64 --adapters 8", 150
    ),
    "moondream3-loading": Part(
        "-m benchmarks.engine.loading --size full3 --scratch /dev/shm --device cuda --dtypes bf16", 90
    ),
    "experts": Part("-m benchmarks.kernels moe tau", 60),
    "llama": Part(f"{_FAMILY} llama-1b", 120),
    "qwen3": Part(f"{_FAMILY} qwen3-4b", 150),
    "qwen3-fp8": Part(f"{_FAMILY} qwen3-4b-fp8", 150),
    "llama-step": Part("-m benchmarks.families.step_times llama-1b --concurrency 64", 120),
    "qwen3-fp8-step": Part("-m benchmarks.families.step_times qwen3-4b-fp8 --concurrency 64", 150),
    "one-launch": Part("-m benchmarks.kernels decode_text moondream2_layer embedding", 120),
    "qwen3-vl": Part(f"{_FAMILY} qwen3-vl-4b", 150),
    "whisper": Part(f"{_FAMILY} whisper-large-v3", 150),
    "whisper-turbo": Part(f"{_FAMILY} whisper-large-v3-turbo", 120),
    "bge-m3": Part(f"{_FAMILY} bge-m3", 90),
    "bge-m3-fp8": Part(f"{_FAMILY} bge-m3 --engine fp8_linears=True", 90),
    "embeddinggemma": Part(f"{_FAMILY} embeddinggemma", 90),
    "hour": Part(f"{_FAMILY} whisper-large-v3-turbo --workloads hour", 120),
    "kernels": Part("-m benchmarks.kernels", 400),
}
"""In the order in which they run."""


def main(argv: list[str] | None = None, *, parts: Mapping[str, Part] = PARTS) -> int:
    """Run the parts; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help="by default all; --list prints them")
    parser.add_argument("--list", action="store_true", help="print each part's command and its limit")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time for all parts")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="folder for figures and outputs")
    arguments = parser.parse_args(argv)
    if unknown := sorted(set(arguments.parts) - set(parts)):
        raise SystemExit(f"no part is called {', '.join(unknown)}: there are {', '.join(parts)}")
    chosen = {name: part for name, part in parts.items() if not arguments.parts or name in arguments.parts}
    if arguments.list:
        print("\n".join(f"{name:<22}{part.seconds:>5} s  python {part.words}" for name, part in chosen.items()))
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    ended = _run_all(chosen, arguments.out, time.monotonic() + arguments.seconds)
    print("\n".join(f"{name:<22}{how}" for name, how in ended.items()))
    return sum(how.startswith("failed") for how in ended.values())


def _run_all(parts: Mapping[str, Part], folder: Path, until: float) -> Mapping[str, str]:
    """Return how each part ended."""
    ended: dict[str, str] = {}
    for name, part in parts.items():
        if (folder / f"{name}.done").exists():
            ended[name] = "done before"
        elif time.monotonic() + part.seconds > until:
            ended[name] = f"left out: it may take {part.seconds} s"
        else:
            ended[name] = _run(name, part, folder)
    return ended


def _run(name: str, part: Part, folder: Path) -> str:
    began, log = time.monotonic(), folder / f"{name}.log"
    with log.open("wb") as output:
        code = _finish(
            shlex.split(part.words), part.seconds, output.fileno(), {**os.environ, "OUT": str(folder / name)}
        )
    seconds = time.monotonic() - began
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    print("\n".join([f"== {name}, {seconds:.0f} s", *lines[-_TAIL_LINES:], ""]), flush=True)
    if code is None:
        return f"failed: it took more than {part.seconds} s"
    if code:
        return f"failed with {code}: see {log}"
    (folder / f"{name}.done").touch()
    return f"done in {seconds:.0f} s"


def _finish(words: Sequence[str], seconds: float, output: int, environment: Mapping[str, str]) -> int | None:
    """Return the exit code; None if the time was over. Processes that the part started end with it."""
    process = subprocess.Popen(
        [sys.executable, *words], stdout=output, stderr=output, env=environment, start_new_session=True
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
