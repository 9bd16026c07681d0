"""Measures how often the demo's model is right, with every skill, on made-up scenes that training never saw.

    python -m benchmarks.accuracy.run --scenes 100            # through Redis, S3 and a worker on this machine
    python -m benchmarks.accuracy.run --scenes 100 --engine   # the engine alone, on the GPU if there is one

Half of the scenes are seen in one crop and half in many. Prints a table; --out writes JSON.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from deploy.demo_model.exam import Ask, Marks, Reply, asks
from deploy.demo_model.pictures.scenes import Scene, scene

__all__ = ["ExamItem", "draw_items", "main"]

FIRST_SEED = 3_000_000
"""Training draws its scenes without seeds, and its exams use other seeds."""

ExamItem = tuple[Scene, Ask]


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
        items = draw_items(arguments.scenes, many_crops=many_crops)
        began = time.perf_counter()
        replies = ask(items, arguments.model, arguments.precision, engine=arguments.engine)
        scores[name] = score(items, replies)
        print(f"{name}: {len(items)} jobs in {time.perf_counter() - began:.0f} s")
    _print(scores)
    if arguments.out:
        arguments.out.write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")


def draw_items(scenes: int, *, many_crops: bool) -> list[ExamItem]:
    """Draw the requests about `scenes` scenes."""
    shown = (scene(FIRST_SEED + number, many_crops=many_crops) for number in range(scenes))
    return [(one, wanted) for one in shown for wanted in asks(one, Random(one.seed))]


def ask(items: list[ExamItem], model: str | None, precision: str | None = None, *, engine: bool) -> list[Reply]:
    """Return the reply to each item."""
    # imported here: the engine's exam must run without Redis or its client, the queue's without torch
    if engine:
        from benchmarks.accuracy.engine import ask_engine

        return ask_engine(items, model, precision)
    from benchmarks.accuracy.queue import ask_queue

    return ask_queue(items, model)


def score(items: list[ExamItem], replies: list[Reply]) -> dict[str, float]:
    """Return every score by name, from 0 to 1."""
    marks = Marks()
    for (shown, wanted), reply in zip(items, replies, strict=True):
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
