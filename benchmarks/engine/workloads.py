"""The benchmarks' questions: each workload is an endless list of questions about photos, the same in every run.

Every answer is greedy and has the length given here, because the random models of `full_size` never stop by themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from benchmarks.engine.photos import LARGE, SMALL, Format
from stoop_worker.engine.request import Caption, Detect, Point, Query, Sampling, Task

__all__ = ["WORKLOADS", "Ask", "Workload", "photos_for"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A task about photo number `photo` of a shape; `tokens` of text, or that many `objects`, are the whole answer.

    `adapter` names one of the engine's.
    """

    task: Task
    photo: int
    shape: Format = LARGE
    tokens: int = 1
    objects: int = 1
    adapter: str | None = None

    @property
    def sampling(self) -> Sampling:
        """Greedy sampling that only its limits end."""
        return Sampling(temperature=0.0, max_tokens=self.tokens, max_objects=self.objects)


@dataclass(frozen=True, slots=True)
class Workload:
    """`ask` returns the question with a given number; with `repeats` several questions are about one photo."""

    name: str
    about: str
    ask: Callable[[int], Ask]
    repeats: bool = False


def photos_for(asks: Iterable[Ask]) -> dict[Format, int]:
    """Return the number of photos of each shape that these questions need."""
    counts: dict[Format, int] = {}
    for ask in asks:
        counts[ask.shape] = max(counts.get(ask.shape, 0), ask.photo + 1)
    return counts


def _task(number: int, length: int = 15) -> Query:
    # Moondream 3 would reason, and its answers then have no set length
    return Query(_question(number, length), reasoning=False)


def _question(number: int, length: int) -> str:
    """Return one of many different questions: in the models of `full_size` a character is a token."""
    return f"What is no. {number}? ".ljust(length, "?")[:length]


def _query(number: int, tokens: int) -> Ask:
    return Ask(_task(number), photo=number, tokens=tokens)


def _mixed(number: int) -> Ask:
    """Return a question: two are about each photo, and half of the answers are short."""
    photo = number - number % 2  # not half of it: that photo may be in the cache from an earlier workload of the run
    tasks: tuple[tuple[Task, int, int], ...] = (
        (_task(number), 3, 1),
        (_task(number), 3, 1),
        (_task(number), 30, 1),
        (Caption(), 128, 1),
        (_task(number), 3, 1),
        (Detect("red circle"), 1, 10),
        (_task(number), 30, 1),
        (Point("blue square"), 1, 5),
    )
    task, tokens, objects = tasks[number % len(tasks)]
    return Ask(task, photo, tokens=tokens, objects=objects)


_ALL = (
    Workload("direct", "query, 3 tokens, every photo new", lambda number: _query(number, 3)),
    Workload("cot", "query, 30 tokens, every photo new", lambda number: _query(number, 30)),
    Workload("caption", "caption, 128 tokens, every photo new", lambda number: Ask(Caption(), number, tokens=128)),
    Workload("detect", "detect, 10 objects, every photo new", lambda number: Ask(Detect("dog"), number, objects=10)),
    Workload(
        "same-image",
        "query, 3 tokens, every question new, one photo",
        lambda number: Ask(_task(number), photo=0, tokens=3),
        repeats=True,
    ),
    Workload("mixed", "all skills, 3 to 128 tokens, two questions a photo", _mixed, repeats=True),
    # 730 positions of the image and 106 of the prompt: 900 in the middle of 128 tokens
    Workload(
        "decode",
        "query, 128 tokens, context 836 to 964: only decode steps are timed",
        lambda number: Ask(_task(number, 101), number, shape=SMALL, tokens=128),
    ),
)

WORKLOADS: Final[Mapping[str, Workload]] = MappingProxyType({workload.name: workload for workload in _ALL})
