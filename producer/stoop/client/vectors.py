"""Vectors as they travel: little-endian float32 values in base64."""

import base64
import sys
from array import array

__all__ = ["read_vector"]


def read_vector(packed: str) -> list[float]:
    """Return the values of a vector of a job's `embeddings`."""
    values = array("f", base64.b64decode(packed))
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
