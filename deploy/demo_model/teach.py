"""Lessons about a scene: the model's inputs as the engine feeds them, with the target of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from random import Random

import numpy as np
import numpy.typing as npt

from deploy.demo_model.pictures.scenes import Scene, Thing
from deploy.demo_model.pictures.speech import ANYTHING, LENGTHS, Label, captions, labels, questions, riddle
from stoop_worker.models.moondream.config import ModelConfig

__all__ = ["NOTHING", "Lesson", "Page", "Step", "Teacher"]

NOTHING = -100
"""Marks a step without this target."""

Tokenize = Callable[[str], list[int]]
_OCTAVES = 10  # size bins are evenly spaced in log2, from 2^-10 to 1
_TREMOR = 1.2  # bins of noise on a coordinate fed back, because the model's own are inexact too


@dataclass(slots=True)
class Step:
    """One input and its targets: an id, with one value for a coordinate or two for a size."""

    id: int
    values: tuple[float, float] = (0.0, 0.0)
    say: int = NOTHING
    at: int = NOTHING
    size: tuple[int, int] = (NOTHING, NOTHING)


Lesson = list[Step]


@dataclass(frozen=True, slots=True)
class Page:
    """Lessons on one scene in S steps; all arrays have S rows, and `lesson` is -1 for padding."""

    ids: npt.NDArray[np.int16]
    values: npt.NDArray[np.float32]
    say: npt.NDArray[np.int16]
    at: npt.NDArray[np.int16]
    size: npt.NDArray[np.int16]
    position: npt.NDArray[np.int16]
    lesson: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Teacher:
    """Writes lessons with one model's token ids and bins."""

    config: ModelConfig
    tokenize: Tokenize

    def page(self, scene: Scene, random: Random, steps: int) -> Page:
        """Return a random choice of lessons on a scene, of every skill, that fits into `steps`."""
        makers: list[Callable[[], Lesson]] = [
            partial(self.caption, scene, random.choice(LENGTHS)),
            partial(self.detect, scene, ANYTHING if random.random() < 0.5 else labels(scene, random), random),
            partial(self.point, scene, labels(scene, random), random),
            partial(self.detect, scene, labels(scene, random), random),
        ]
        asked = questions(scene, random)
        rest = [partial(self.answer, question.text, question.answer) for question in asked]
        rest.append(partial(self.reckon, scene, labels(scene, random, absent=0.15), random))
        rest += [partial(self.answer, question.text, question.answer) for question in questions(scene, random)[:2]]
        random.shuffle(rest)
        lessons: list[Lesson] = []
        room = steps
        for make in makers + rest:
            lesson = make()
            if len(lesson) <= room:
                lessons.append(lesson)
                room -= len(lesson)
        return self._page(lessons, steps)

    def blank_page(self, random: Random, steps: int) -> Page:
        """Return one lesson without an image: the first token, then the question, from position 0."""
        asked = riddle(random)
        lesson = [Step(self.config.tokenizer.bos_id), *self.answer(asked.text, asked.answer)]
        page = self._page([lesson], steps)
        page.position[:] = np.arange(steps)
        return page

    def caption(self, scene: Scene, length: str) -> Lesson:
        """Teach one caption."""
        prompt = self.config.tokenizer.templates.caption[length]
        return self._text(prompt, self.tokenize(captions(scene)[length]))

    def answer(self, question: str, answer: str) -> Lesson:
        """Teach one answer, without reasoning."""
        ids = self.config.tokenizer
        tail = ids.templates.query.suffix * (2 if ids.query_double_suffix else 1)
        return self._text(self._question(question, tail), self.tokenize(answer))

    def detect(self, scene: Scene, label: Label, random: Random) -> Lesson:
        """Teach the boxes of a label, from left to right."""
        affixes = self.config.tokenizer.templates.detect
        prompt = [*affixes.prefix, *self.tokenize(" " + _name(label, random)), *affixes.suffix]
        return self._found(prompt, label.among(scene.things), random, boxes=True)

    def point(self, scene: Scene, label: Label, random: Random) -> Lesson:
        """Teach the centres of a label, from left to right."""
        affixes = self.config.tokenizer.templates.point
        prompt = [*affixes.prefix, *self.tokenize(" " + _name(label, random)), *affixes.suffix]
        return self._found(prompt, label.among(scene.things), random, boxes=False)

    def reckon(self, scene: Scene, label: Label, random: Random) -> Lesson:
        """Teach counting by pointing: the reasoning refers to the things that it counts."""
        ids = self.config.tokenizer
        found = label.among(scene.things)
        name = label.text(plural=len(found) != 1)
        prompt = self._question(
            f"How many {label.text(plural=True)} are there?", (*ids.templates.query.suffix, ids.thinking_id)
        )
        lesson = [Step(token) for token in prompt]
        self._append_reply(lesson, self.tokenize("I see"))
        if found:
            self._append_reply(lesson, [ids.start_ground_points_id])
            for value in (value for thing in found for value in (thing.x, thing.y)):
                lesson[-1].say, lesson[-1].at = ids.coord_id, self.coordinate_bin(value)
                lesson.append(self._coordinate(value, random))
        self._append_reply(lesson, self.tokenize(f" {len(found) or 'no'} {name}"))
        if found:
            self._append_reply(lesson, [ids.end_ground_id])
        self._append_reply(lesson, self.tokenize("."))
        self._append_reply(lesson, list(ids.templates.query.suffix))
        self._append_reply(lesson, self.tokenize(str(len(found))))
        lesson[-1].say = ids.eos_id
        return lesson

    def coordinate_bin(self, value: float) -> int:
        """Return the bin that reads back nearest to a value: bin / bins."""
        bins = self.config.region.coord_out_dim
        return max(0, min(bins - 1, round(value * bins)))

    def size_bin(self, value: float) -> int:
        """Return the bin that reads back nearest to a width or height: bins are evenly spaced in its logarithm."""
        last = self.config.region.size_out_dim // 2 - 1
        return max(0, min(last, round((log2(max(value, 2.0**-_OCTAVES)) + _OCTAVES) / _OCTAVES * last)))

    def _question(self, question: str, tail: Sequence[int]) -> list[int]:
        return [*self.config.tokenizer.templates.query.prefix, *self.tokenize(question), *tail]

    def _text(self, prompt: Sequence[int], answer: Sequence[int]) -> Lesson:
        lesson = [Step(token) for token in prompt]
        self._append_reply(lesson, answer)
        lesson[-1].say = self.config.tokenizer.eos_id
        return lesson

    def _append_reply(self, lesson: Lesson, tokens: Sequence[int]) -> None:
        for token in tokens:
            lesson[-1].say = token
            lesson.append(Step(token))

    def _found(self, prompt: Sequence[int], things: Sequence[Thing], random: Random, *, boxes: bool) -> Lesson:
        ids = self.config.tokenizer
        lesson = [Step(token) for token in prompt]
        for thing in things:
            lesson[-1].say, lesson[-1].at = ids.coord_id, self.coordinate_bin(thing.x)
            lesson.append(self._coordinate(thing.x, random))
            lesson[-1].at = self.coordinate_bin(thing.y)
            lesson.append(self._coordinate(thing.y, random))
            if boxes:
                lesson[-1].size = self.size_bin(thing.w), self.size_bin(thing.h)
                lesson.append(Step(ids.size_id, self._size(thing, random)))
        lesson[-1].say = ids.eos_id
        return lesson

    def _coordinate(self, value: float, random: Random) -> Step:
        bins = self.config.region.coord_out_dim
        seen = max(0, min(bins - 1, round(value * bins + random.gauss(0, _TREMOR))))
        return Step(self.config.tokenizer.coord_id, (seen / bins, 0.0))

    def _size(self, thing: Thing, random: Random) -> tuple[float, float]:
        last = self.config.region.size_out_dim // 2 - 1
        width, height = (self.size_bin(side) + random.gauss(0, 3) for side in (thing.w, thing.h))
        return 2 ** (min(width, last) / last * _OCTAVES - _OCTAVES), 2 ** (
            min(height, last) / last * _OCTAVES - _OCTAVES
        )

    def _page(self, lessons: Sequence[Lesson], steps: int) -> Page:
        page = Page(
            ids=np.zeros(steps, np.int16),
            values=np.zeros((steps, 2), np.float32),
            say=np.full(steps, NOTHING, np.int16),
            at=np.full(steps, NOTHING, np.int16),
            size=np.full((steps, 2), NOTHING, np.int16),
            position=np.zeros(steps, np.int16),
            lesson=np.full(steps, -1, np.int8),
        )
        start = 0
        for number, lesson in enumerate(lessons):
            rows = slice(start, start + len(lesson))
            page.ids[rows] = [step.id for step in lesson]
            page.values[rows] = [step.values for step in lesson]
            page.say[rows] = [step.say for step in lesson]
            page.at[rows] = [step.at for step in lesson]
            page.size[rows] = [step.size for step in lesson]
            page.position[rows] = np.arange(len(lesson)) + self.config.text.prefix_attn
            page.lesson[rows] = number
            start += len(lesson)
        return page


def _name(label: Label, random: Random) -> str:
    return label.text(plural=random.random() < 0.4)
