"""An answer in one line, for tables and progress displays."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from stoop.client.vectors import read_vector
from stoop.terminal import counted, one_line
from stoop_schemas.result import Result
from stoop_schemas.skill import Box, Point

__all__ = ["place_text", "short_answer", "vector_text", "weights_text"]


def short_answer(result: Result, width: int = 60) -> str:
    """Return the answer, or the reason for its absence, in at most `width` characters."""
    output, text = result.output, ""
    if result.failure is not None:
        text = f"{result.failure.code}: {result.failure.message}"
    elif output is not None and output.objects is not None:
        text = (
            counted(len(output.objects), "box", "boxes")
            + " "
            + ", ".join(place_text(msgspec.to_builtins(box)) for box in output.objects)
        )
    elif output is not None and output.points is not None:
        text = counted(len(output.points), "point") + " " + _places(output.points)
    elif output is not None and output.gaze is not UNSET:
        text = f"looks at {_places([output.gaze])}" if output.gaze else "looks at nothing in the image"
    elif output is not None and output.embeddings is not None:
        text = counted(len(output.embeddings), "vector")
    elif output is not None and (output.sparse is not None or output.colbert is not None):
        text = "vectors of " + counted(len(output.sparse or output.colbert or ()), "text")
    elif output is not None and output.scores is not None:
        text = counted(len(output.scores), "score") + " " + ", ".join(f"{score:.3f}" for score in output.scores)
    elif output is not None:
        text = output.text or ""
    return one_line(" ".join(text.split()), width)


def _places(found: Sequence[Box] | Sequence[Point]) -> str:
    return ", ".join(place_text(msgspec.to_builtins(place)) for place in found)


def place_text(place: dict[str, float]) -> str:
    """Return the coordinates of a box or a point, such as "(0.250, 0.750)"."""
    return "(" + ", ".join(f"{value:.3f}" for value in place.values()) + ")"


def vector_text(packed: str) -> str:
    """Return the first values of a vector and their number, such as "0.0134, -0.0276, … (1024 values)"."""
    values = read_vector(packed)
    return ", ".join(f"{value:.4f}" for value in values[:4]) + f", … ({len(values)} values)"


def weights_text(indices: Sequence[int], values: Sequence[float]) -> str:
    """Return the largest weights and the number of all, such as "1234: 0.312, 87: 0.201, … (9 tokens)"."""
    most = sorted(zip(indices, values, strict=True), key=lambda each: -each[1])[:3]
    more = ", …" if len(indices) > len(most) else ""
    return ", ".join(f"{index}: {value:.3f}" for index, value in most) + f"{more} ({counted(len(indices), 'token')})"
