"""One image with all answers about it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stoop.export.gathered import ImageEntry
from stoop.export.geometry import inside, point_inside
from stoop.export.orientation import orient_box, orient_point
from stoop.export.rows import Row
from stoop_schemas.skill import Box, Point

__all__ = ["Annotated", "annotate"]


@dataclass(frozen=True, slots=True)
class Annotated:
    """An image with the answers about it: labelled boxes and points, all within the image, captions and answers.

    Places are in the image as readers see it.

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
        """The model of the first answer."""
        return next((row.model for row in self.rows if row.model), "stoop")

    def labelled(self) -> dict[str, int]:
        """Count the boxes and points of each label; a requested label without any counts 0."""
        asked = (
            row.label for row in self.rows if row.output and (row.output.objects, row.output.points) != (None, None)
        )
        found = Counter(label for label, _ in (*self.boxes, *self.points))
        return {label: found[label] for label in dict.fromkeys(asked)}

    def counts(self) -> dict[str, int]:
        """Count the answers of each kind."""
        kinds = ("boxes", "points", "captions", "answers")
        return {kind: len(getattr(self, kind)) for kind in kinds}


def annotate(image: ImageEntry, rows: Sequence[Row]) -> Annotated:
    """Combine the outputs of completed rows."""
    answered = [(row, row.output) for row in rows if row.output is not None]
    boxes = [
        (row.label, inside(orient_box(box, image.orientation), image.size))
        for row, output in answered
        for box in output.objects or ()
    ]
    kept = [(label, box) for label, box in boxes if box is not None]
    return Annotated(
        image=image,
        rows=rows,
        boxes=kept,
        points=[
            (row.label, point_inside(orient_point(point, image.orientation)))
            for row, output in answered
            for point in output.points or ()
        ],
        captions=[output.caption for _, output in answered if output.caption],
        answers=[(row.asked, output.answer) for row, output in answered if output.answer],
        empty=len(boxes) - len(kept),
    )
