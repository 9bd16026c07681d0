"""The demo's jobs: every skill, several questions on the same picture, one that thinks, one without a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from producer.demo.pictures import Picture

__all__ = ["Errand", "plan_burst"]


@dataclass(frozen=True, slots=True)
class Errand:
    """One job to submit: its skill, its picture, the fields of the job, and what a right answer says."""

    skill: str
    picture: Picture | None
    fields: dict[str, Any] = field(default_factory=dict)
    truth: str = field(default="", kw_only=True)

    @property
    def subject(self) -> str:
        """What is asked, in a few words."""
        return str(self.fields.get("question") or self.fields.get("object") or self.fields.get("length") or "")


def plan_burst(pictures: Sequence[Picture]) -> list[Errand]:
    """Plan the jobs for the pictures."""
    planned = [errand for number, picture in enumerate(pictures) for errand in _about(picture, number)]
    question = "Which comes first in the alphabet: circle or square?"
    return [*planned, Errand("query", None, {"question": question}, truth="circle")]


def _about(picture: Picture, number: int) -> Iterator[Errand]:
    shape = picture.shapes[0]
    everything = ", ".join(shape.name for shape in picture.shapes)
    yield Errand("caption", picture, {"length": "short" if number % 2 else "normal"}, truth=everything)
    yield Errand("detect", picture, {"object": shape.name}, truth=f"{picture.count(shape.name)} boxes")
    if number % 2 == 0:
        how_many = {"question": "How many shapes are there?", "reasoning": number == 0}
        yield Errand("query", picture, how_many, truth=str(len(picture.shapes)))
        yield Errand("point", picture, {"object": shape.name}, truth=f"{picture.count(shape.name)} points")
    else:
        yield Errand("query", picture, {"question": f"Is there a {shape.name}?"}, truth="yes")
