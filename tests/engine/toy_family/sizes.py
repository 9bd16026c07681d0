"""The toy's sizes."""

from typing import Final

__all__ = [
    "AXES",
    "CONTEXT",
    "DIM",
    "EOS",
    "EPSILON",
    "FF_DIM",
    "HEADS",
    "HEAD_DIM",
    "KEY_HEADS",
    "LAYERS",
    "PATCH",
    "THETA",
    "VOCABULARY",
]

LAYERS: Final = 2
DIM: Final = 32
FF_DIM: Final = 48
HEADS: Final = 4
KEY_HEADS: Final = 2
HEAD_DIM: Final = 16
VOCABULARY: Final = 70_000
CONTEXT: Final = 64
AXES: Final = 2
THETA: Final = 100.0
EPSILON: Final = 1e-6
PATCH: Final = 4
"""Pixels along the side of a patch, of which each is one embedding."""

EOS: Final = 0
