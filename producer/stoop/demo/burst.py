"""The demo's jobs: every skill, several questions per picture, one with reasoning, one without a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoop.demo.pictures import Picture
from stoop.terminal import counted

__all__ = ["DemoJob", "plan_burst"]


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job to submit: its skill, its picture, the fields of the job, and the right answer."""

    skill: str
    picture: Picture | None
    fields: dict[str, Any] = field(default_factory=dict)
    truth: str = field(default="", kw_only=True)

    @property
    def subject(self) -> str:
        """The job's question, object or length; empty if it has none."""
        return str(self.fields.get("question") or self.fields.get("object") or self.fields.get("length") or "")


def plan_burst(pictures: Sequence[Picture]) -> list[DemoJob]:
    """Plan the jobs for the pictures."""
    planned = [job for number, picture in enumerate(pictures) for job in _about(picture, number)]
    question = "Which comes first in the alphabet: circle or square?"
    return [*planned, DemoJob("query", None, {"question": question}, truth="circle")]


def _about(picture: Picture, number: int) -> Iterator[DemoJob]:
    shape = picture.shapes[0]
    everything = ", ".join(shape.name for shape in picture.shapes)
    yield DemoJob("caption", picture, {"length": "short" if number % 2 else "normal"}, truth=everything)
    yield DemoJob("detect", picture, {"object": shape.name}, truth=counted(picture.count(shape.name), "box", "boxes"))
    if number % 2 == 0:
        how_many = {"question": "How many shapes are there?", "reasoning": number == 0}
        yield DemoJob("query", picture, how_many, truth=str(len(picture.shapes)))
        yield DemoJob("point", picture, {"object": shape.name}, truth=counted(picture.count(shape.name), "point"))
    else:
        yield DemoJob("query", picture, {"question": f"Is there a {shape.name}?"}, truth="yes")
