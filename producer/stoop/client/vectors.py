"""Vectors on the wire: little-endian float32 values in base64."""

import base64
import sys
from array import array
from collections.abc import Callable
from typing import Any

__all__ = ["read_token_vectors", "read_vector", "read_vectors"]


def read_vector(packed: str) -> list[float]:
    """Return the values of a vector of a job's `embeddings`."""
    values = array("f", base64.b64decode(packed))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def read_token_vectors(packed: dict[str, Any]) -> list[list[float]]:
    """Return the vectors of a text's tokens, from one of a job's `colbert`."""
    values, count = read_vector(packed["values"]), packed["count"]
    width = len(values) // max(count, 1)
    return [values[start : start + width] for start in range(0, len(values), max(width, 1))]


def read_vectors(output: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, as plain values, with numbers in place of packed vectors."""
    read: dict[str, Callable[[Any], Any]] = {"embeddings": read_vector, "colbert": read_token_vectors}
    return output | {name: list(map(read[name], output[name])) for name in read if name in output}
