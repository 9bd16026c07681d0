"""Coordinates and sizes, the inputs and outputs besides tokens, as fractions of the image."""

from enum import IntEnum

from stoop_worker.engine.inputs import TOKEN, ValuesInput
from stoop_worker.engine.skill import HeadValues

__all__ = [
    "COLUMNS",
    "FED_COLUMNS",
    "Fed",
    "continues_by",
    "coordinate_input",
    "coordinate_of",
    "size_input",
    "size_of",
]

COLUMNS = 4
"""The heads give a coordinate, a width and a height, and how far the coordinate id's logit is above that of the end."""

FED_COLUMNS = 2
"""The widest input of values is a size."""


class Fed(IntEnum):
    """The kinds of inputs."""

    TOKEN = TOKEN
    COORDINATE = 1
    SIZE = 2
    START = 4
    """The first token of a text whose sequence has an adapter; its value is the adapter's key."""
    COORDINATE_IF_MARKED = 3
    """The coordinate if the token is the coordinate mark, else the token; only for look-aheads."""


def coordinate_input(value: float) -> ValuesInput:
    """Return the input of an x or a y."""
    return ValuesInput(Fed.COORDINATE.value, (value,))


def size_input(width: float, height: float) -> ValuesInput:
    """Return the input of a width and a height together."""
    return ValuesInput(Fed.SIZE.value, (width, height))


def coordinate_of(found: HeadValues) -> float:
    """Return the coordinate that the heads found."""
    return found.values[0]


def continues_by(found: HeadValues) -> float:
    """Return how far the logit of the coordinate id is above that of the end; below 0 there is no further object."""
    return found.values[3]


def size_of(found: HeadValues) -> tuple[float, float]:
    """Return the width and the height that the heads found."""
    return found.values[1], found.values[2]
