"""An exam about a scene: requests for every skill, and marks for the replies."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from deploy.demo_model.pictures.scenes import COLOURS, Scene, Thing
from deploy.demo_model.pictures.shapes import DIGITS, SHAPES
from deploy.demo_model.pictures.speech import ANYTHING, LENGTHS, Label, captions, labels, questions

__all__ = ["Ask", "Box", "Marks", "Reply", "asks"]

Box = tuple[float, float, float, float]
Reply = str | Sequence[Box] | Sequence[tuple[float, float]]
"""A text, boxes (x_min, y_min, x_max, y_max) or points (x, y), depending on the skill."""

Fit = Callable[[tuple[float, ...], Thing], float]
_PHRASE = re.compile(rf"\b(an?|\d+) ({'|'.join(COLOURS)}) (crosse|{'|'.join((*SHAPES, *DIGITS))})s?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: `text` is the question, the caption's length, or the object; `answer` a query's right answer."""

    skill: str
    kind: str
    text: str
    answer: str = ""
    label: Label | None = None
    reasoning: bool = False


def asks(scene: Scene, random: Random) -> list[Ask]:
    """Draw one request of every kind."""
    found = [Ask("query", question.kind, question.text, question.answer) for question in questions(scene, random)]
    found += [Ask("caption", f"caption {length}", length) for length in LENGTHS]
    for label in (ANYTHING, labels(scene, random)):
        found.append(Ask("detect", "detect", label.text(), label=label))
    label = labels(scene, random)
    found.append(Ask("point", "point", label.text(plural=True), label=label))
    label = labels(scene, random, absent=0.15)
    text = f"How many {label.text(plural=True)} are there?"
    found.append(Ask("query", "count by pointing", text, str(len(label.among(scene.things))), reasoning=True))
    return found


@dataclass(slots=True)
class Marks:
    """Counts of right and all replies, by kind; for boxes and points also of matched, given and wanted ones."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def mark(self, ask: Ask, scene: Scene, reply: Reply) -> bool:
        """Count a reply; return whether all of it is right."""
        right = self._found(ask, scene, reply) if not isinstance(reply, str) else _is_right(ask, scene, reply)
        self.counts[ask.kind, "right"] += right
        self.counts[ask.kind, "all"] += 1
        return right

    def table(self) -> dict[str, float]:
        """Return every score by name, from 0 to 1: the share of right replies, or F1 for boxes and points."""
        kinds = sorted({kind for kind, what in self.counts if what == "all"})
        scores = {f"{kind} exact": self.counts[kind, "right"] / self.counts[kind, "all"] for kind in kinds}
        for kind, level in sorted({key for key in self.counts if key[1].startswith("matched")}):
            given, wanted = self.counts[kind, "given"], self.counts[kind, "wanted"]
            scores[f"{kind} F1 {level.removeprefix('matched ')}"] = (
                2 * self.counts[kind, level] / max(given + wanted, 1)
            )
        return scores

    def _found(self, ask: Ask, scene: Scene, reply: Sequence[tuple[float, ...]]) -> bool:
        assert ask.label is not None
        things = ask.label.among(scene.things)
        self.counts[ask.kind, "given"] += len(reply)
        self.counts[ask.kind, "wanted"] += len(things)
        if ask.skill == "point":
            matched = _matched(reply, things, _inside, 0.5)
            self.counts[ask.kind, "matched inside"] += matched
            return matched == len(things) == len(reply)
        for bar in (0.5, 0.75):
            self.counts[ask.kind, f"matched at IoU {bar}"] += _matched(reply, things, _overlap, bar)
        return _matched(reply, things, _overlap, 0.5) == len(things) == len(reply)


def _is_right(ask: Ask, scene: Scene, reply: str) -> bool:
    if ask.skill == "query":
        return reply.strip() == ask.answer
    truth = Counter((thing.colour, thing.kind) for thing in scene.things)
    named: Counter[tuple[str, str]] = Counter()
    for count, colour, noun in _PHRASE.findall(reply):
        named[colour, noun.removesuffix("e") if noun == "crosse" else noun] += int(count) if count.isdigit() else 1
    return named == truth and len(reply) < 2 * len(captions(scene)[ask.text])


def _matched(reply: Sequence[tuple[float, ...]], things: Sequence[Thing], fit: Fit, bar: float) -> int:
    """Count the replies that fit one thing each, best fits first."""
    fits = sorted(
        ((fit(given, thing), i, j) for i, given in enumerate(reply) for j, thing in enumerate(things)), reverse=True
    )
    used_replies: set[int] = set()
    used_things: set[int] = set()
    for score, i, j in fits:
        if score >= bar and i not in used_replies and j not in used_things:
            used_replies.add(i)
            used_things.add(j)
    return len(used_things)


def _inside(point: tuple[float, ...], thing: Thing) -> float:
    left, top, right, bottom = thing.box
    return float(left <= point[0] <= right and top <= point[1] <= bottom)


def _overlap(box: tuple[float, ...], thing: Thing) -> float:
    left, top, right, bottom = thing.box
    across = min(box[2], right) - max(box[0], left)
    along = min(box[3], bottom) - max(box[1], top)
    if across <= 0 or along <= 0:
        return 0.0
    both = across * along
    return both / ((box[2] - box[0]) * (box[3] - box[1]) + thing.w * thing.h - both)
