"""The limits of the texts that a job brings to be embedded or ranked."""

from typing import Final

__all__ = ["DIMENSIONS_LIMIT", "TEXTS_LENGTH_LIMIT", "TEXTS_LIMIT"]

TEXTS_LIMIT: Final = 256
"""Most texts to embed, or documents to rank, of a job; it also bounds the size of the answer."""

TEXTS_LENGTH_LIMIT: Final = 1 << 20
"""Most characters of all texts of a job."""

DIMENSIONS_LIMIT: Final = 1 << 16
"""Most values of a vector that a job may ask for."""
