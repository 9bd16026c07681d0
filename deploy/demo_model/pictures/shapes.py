"""The shapes and digits of scenes as signed distances; each fills its box exactly.

Every figure lives in u in [-aspect, aspect] (to the right) and v in [-1, 1] (downwards). A distance is
negative inside, in units of half the figure's height, exact enough near the edge to smooth it.
"""

from itertools import pairwise
from math import cos, pi, sin, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ATLAS_REACH", "DIGITS", "KINDS", "SHAPES", "aspect", "atlas", "distance"]

Plane = npt.NDArray[Any]

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
DIGITS = tuple("0123456789")
KINDS = SHAPES + DIGITS

ATLAS_REACH = 1.5
"""The atlas covers u and v from -ATLAS_REACH to ATLAS_REACH."""

_DIGIT_ASPECT = 0.62
_STROKE = 0.17  # half the width of a digit's pen
_X, _Y = _DIGIT_ASPECT - _STROKE, 1 - _STROKE
# corners of each digit's strokes, in units of the pen's reach
_STROKES: dict[str, tuple[tuple[tuple[float, float], ...], ...]] = {
    "0": (((-1, -0.6), (-0.4, -1), (0.4, -1), (1, -0.6), (1, 0.6), (0.4, 1), (-0.4, 1), (-1, 0.6), (-1, -0.6)),),
    "1": (((-0.9, -0.55), (0, -1), (0, 1)), ((-1, 1), (1, 1))),
    "2": (((-1, -0.6), (-0.5, -1), (0.5, -1), (1, -0.6), (1, -0.2), (-1, 1), (1, 1)),),
    "3": (((-1, -1), (1, -1), (-0.1, -0.2), (0.6, -0.1), (1, 0.3), (1, 0.65), (0.5, 1), (-0.5, 1), (-1, 0.7)),),
    "4": (((0.5, 1), (0.5, -1), (-1, 0.4), (1, 0.4)),),
    "5": (((1, -1), (-0.9, -1), (-1, -0.1), (0.4, -0.15), (1, 0.25), (1, 0.6), (0.4, 1), (-1, 0.85)),),
    "6": (
        ((0.7, -1), (-0.3, -0.6), (-1, 0.2), (-1, 0.7), (-0.4, 1), (0.4, 1), (1, 0.7), (1, 0.3), (0.4, 0), (-1, 0.2)),
    ),
    "7": (((-1, -1), (1, -1), (-0.3, 1)),),
    "8": (
        ((0, -0.1), (-0.85, -0.45), (-0.85, -0.7), (-0.3, -1), (0.3, -1), (0.85, -0.7), (0.85, -0.45), (0, -0.1)),
        ((0, -0.1), (-1, 0.35), (-1, 0.65), (-0.4, 1), (0.4, 1), (1, 0.65), (1, 0.35), (0, -0.1)),
    ),
    "9": (
        (
            (-0.7, 1),
            (0.3, 0.6),
            (1, -0.2),
            (1, -0.7),
            (0.4, -1),
            (-0.4, -1),
            (-1, -0.7),
            (-1, -0.3),
            (-0.4, 0),
            (1, -0.2),
        ),
    ),
}
_TIP = 0.5 * (1 + cos(pi / 5))  # half the height of a five-pointed star of radius 1
_SPAN = sin(2 * pi / 5)  # half its width
_NOTCH = 0.45  # radius of its inner corners


def aspect(kind: str) -> float:
    """Return the width of a figure's box over its height."""
    return _DIGIT_ASPECT if kind in DIGITS else 1.0


def distance(kind: str, u: Plane, v: Plane) -> Plane:
    """Return the signed distance of each (u, v) to the figure's edge, negative inside."""
    found: Plane
    match kind:
        case "circle":
            found = np.sqrt(u * u + v * v) - 1
        case "ring":
            found = np.abs(np.sqrt(u * u + v * v) - 0.75) - 0.25
        case "square":
            found = np.maximum(np.abs(u), np.abs(v)) - 1
        case "triangle":
            found = np.maximum(v - 1, (2 * np.abs(u) - v - 1) / np.float32(sqrt(5)))
        case "cross":
            across, along = np.abs(u), np.abs(v)
            found = np.minimum(np.maximum(across - 1, along - 0.34), np.maximum(along - 1, across - 0.34))
        case "star":
            found = _star(u * np.float32(_SPAN), v * np.float32(_TIP) + np.float32(_TIP - 1))
        case _:
            found = _digit(kind, u, v)
    return found


def atlas(side: int) -> Plane:
    """Return every kind's distances (kinds, side, side), sampled at cell centres over the atlas's reach."""
    line = ((np.arange(side, dtype=np.float32) + 0.5) / side * 2 - 1) * np.float32(ATLAS_REACH)
    u, v = line[None, :].repeat(side, 0), line[:, None].repeat(side, 1)
    return np.stack([distance(kind, u, v) for kind in KINDS]).astype(np.float32)


def _star(u: Plane, v: Plane) -> Plane:
    # mirror the plane until only the right half of the upper tip is left, whose edge is one straight line
    across, along = np.float32(cos(pi / 5)), np.float32(sin(pi / 5))
    u = np.abs(u)
    for _ in range(2):
        beyond = np.maximum(u * across + v * along, 0)
        u, v = np.abs(u - 2 * beyond * across), v - 2 * beyond * along
    inner_u, inner_v = _NOTCH * sin(pi / 5), -_NOTCH * cos(pi / 5)
    edge_u, edge_v = inner_u, inner_v + 1
    length = sqrt(edge_u * edge_u + edge_v * edge_v)
    off: Plane = (u * np.float32(edge_v / length)) - ((v + 1) * np.float32(edge_u / length))
    return off


def _digit(kind: str, u: Plane, v: Plane) -> Plane:
    nearest = np.full(np.broadcast(u, v).shape, np.inf, dtype=np.float32)
    for stroke in _STROKES[kind]:
        for (from_u, from_v), (to_u, to_v) in pairwise(stroke):
            start, step = (from_u * _X, from_v * _Y), ((to_u - from_u) * _X, (to_v - from_v) * _Y)
            share = ((u - start[0]) * step[0] + (v - start[1]) * step[1]) / (step[0] ** 2 + step[1] ** 2)
            share = np.clip(share, 0, 1)
            off_u, off_v = u - start[0] - share * step[0], v - start[1] - share * step[1]
            nearest = np.minimum(nearest, off_u * off_u + off_v * off_v)
    return (np.sqrt(nearest) - np.float32(_STROKE)).astype(np.float32)
