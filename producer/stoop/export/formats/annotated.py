"""One image with all that was said of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from producer.export.gathered import ImageEntry
from producer.export.geometry import inside, point_inside
from producer.export.rows import Row
from schemas.skill import Box, Point

__all__ = ["Annotated", "annotate"]


@dataclass(frozen=True, slots=True)
class Annotated:
    """An image with the answers about it: labelled boxes and points, all within the image, captions and answers.

    `boxes` and `points` are (label, place), `answers` (question, answer); `empty` counts boxes without area in it.
    """

    image: ImageEntry
    rows: Sequence[Row]
    boxes: Sequence[tuple[str, Box]]
    points: Sequence[tuple[str, Point]]
    captions: Sequence[str]
    answers: Sequence[tuple[str, str]]
    empty: int

    @property
    def model(self) -> str:
        """The model that said it first."""
        return next((row.model for row in self.rows if row.model), "stoop")

    def labelled(self) -> dict[str, int]:
        """Say how many boxes and points there are of each label, none too where it was asked for."""
        asked = (
            row.label for row in self.rows if row.output and (row.output.objects, row.output.points) != (None, None)
        )
        found = Counter(label for label, _ in (*self.boxes, *self.points))
        return {label: found[label] for label in dict.fromkeys(asked)}

    def counts(self) -> dict[str, int]:
        """Say how much there is of each kind."""
        kinds = ("boxes", "points", "captions", "answers")
        return {kind: len(getattr(self, kind)) for kind in kinds}


def annotate(image: ImageEntry, rows: Sequence[Row]) -> Annotated:
    """Put the outputs of completed rows together."""
    told = [(row, row.output) for row in rows if row.output is not None]
    boxes = [(row.label, inside(box)) for row, output in told for box in output.objects or ()]
    kept = [(label, box) for label, box in boxes if box is not None]
    return Annotated(
        image=image,
        rows=rows,
        boxes=kept,
        points=[(row.label, point_inside(point)) for row, output in told for point in output.points or ()],
        captions=[output.caption for _, output in told if output.caption],
        answers=[(row.asked, output.answer) for row, output in told if output.answer],
        empty=len(boxes) - len(kept),
    )
