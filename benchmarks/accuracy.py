"""How often the demo's model is right: made-up scenes it was never trained on, asked with every skill.

    python -m benchmarks.accuracy --scenes 100            # through Redis, S3 and a worker on this machine
    python -m benchmarks.accuracy --scenes 100 --engine   # the engine alone, on the GPU where there is one

Half of the scenes are seen in one crop and half in many. Prints a table; --out writes JSON.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from deploy.demo.exam import Ask, Marks, Reply, asks
from deploy.demo.scenes import Scene, scene

__all__ = ["Errand", "draw_errands", "main"]

FIRST_SEED = 3_000_000
"""Training draws its scenes without seeds; no exam of it uses these."""

Errand = tuple[Scene, Ask]


def main() -> None:
    """Ask, mark, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=40, help="scenes of each kind")
    parser.add_argument("--engine", action="store_true", help="ask the engine itself, not the queue")
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16", "fp8", "fp8-cache"), help="of the engine, with --engine"
    )
    parser.add_argument("--model", help="folder of the model; by default the demo's")
    parser.add_argument("--out", type=Path, help="file to write the scores to, as JSON")
    arguments = parser.parse_args()
    scores = {}
    for name, many_crops in (("one crop", False), ("many crops", True)):
        errands = draw_errands(arguments.scenes, many_crops=many_crops)
        began = time.perf_counter()
        replies = ask(errands, arguments.model, arguments.precision, engine=arguments.engine)
        scores[name] = score(errands, replies)
        print(f"{name}: {len(errands)} jobs in {time.perf_counter() - began:.0f} s")
    _print(scores)
    if arguments.out:
        arguments.out.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")


def draw_errands(scenes: int, *, many_crops: bool) -> list[Errand]:
    """Draw what to ask about as many scenes."""
    shown = (scene(FIRST_SEED + number, many_crops=many_crops) for number in range(scenes))
    return [(one, wanted) for one in shown for wanted in asks(one, Random(one.seed))]


def ask(errands: list[Errand], model: str | None, precision: str | None = None, *, engine: bool) -> list[Reply]:
    """Return the reply to each errand."""
    # the engine's way must run where neither Redis nor its client is installed, the queue's where there is no torch
    if engine:
        from benchmarks.accuracy_engine import ask_engine

        return ask_engine(errands, model, precision)
    from benchmarks.accuracy_queue import ask_queue

    return ask_queue(errands, model)


def score(errands: list[Errand], replies: list[Reply]) -> dict[str, float]:
    """Return every score by name, from 0 to 1."""
    marks = Marks()
    for (shown, wanted), reply in zip(errands, replies, strict=True):
        marks.mark(wanted, shown, reply)
    return marks.table()


def _print(scores: Mapping[str, Mapping[str, float]]) -> None:
    for line in _lines(scores):
        print(line)


def _lines(scores: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield f"{'':<28}" + "".join(f"{name:>12}" for name in scores)
    for kind in sorted({kind for table in scores.values() for kind in table}):
        yield f"{kind:<28}" + "".join(f"{table.get(kind, float('nan')):>12.3f}" for table in scores.values())


if __name__ == "__main__":
    main()
