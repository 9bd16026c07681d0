"""Relaxed accuracy, the measure of ChartQA: a number may be 5 % off; any other answer must match except for case."""

import ast
from collections.abc import Sequence
from math import isfinite
from typing import Final

__all__ = ["is_right"]

_TOLERANCE: Final = 0.05


def is_right(found: str, expected: Sequence[str]) -> bool:
    """Return whether an answer matches any of the expected ones; a list must match part by part."""
    return any(_matches(found.strip(), each.strip()) for each in expected)


def _matches(found: str, expected: str) -> bool:
    parts, wanted = _parts(found), _parts(expected)
    return len(parts) == len(wanted) and all(_agree(*pair) for pair in zip(parts, wanted, strict=True))


def _agree(found: str, expected: str) -> bool:
    number, wanted = _number(found), _number(expected)
    if number is None or wanted is None:
        return found.lower() == expected.lower()
    return abs(number - wanted) <= _TOLERANCE * abs(wanted)


def _number(text: str) -> float | None:
    try:
        value = float(text.removesuffix("%").replace(",", ""))
    except ValueError:
        return None
    if not isfinite(value):
        return None
    return value / 100 if text.endswith("%") else value


def _parts(text: str) -> list[str]:
    """Return the parts of a list such as "[1, 2]"; any other text is its own only part."""
    if not (text.startswith("[") and text.endswith("]")):
        return [text]
    try:
        found = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # a model may write anything
        found = text[1:-1].split(",")
    return [str(each).strip() for each in found]
