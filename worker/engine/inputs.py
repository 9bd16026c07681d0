"""What is fed to the text model after the image prefix: values that can be hashed, cached and fed again."""

from dataclasses import dataclass

__all__ = ["CoordinateInput", "Input", "SizeInput", "TokenInput"]


@dataclass(frozen=True, slots=True)
class TokenInput:
    """A token, embedded by its id."""

    id: int


@dataclass(frozen=True, slots=True)
class CoordinateInput:
    """An x or a y as a fraction of the image, embedded by the region model."""

    value: float


@dataclass(frozen=True, slots=True)
class SizeInput:
    """A width and a height as fractions of the image, embedded together by the region model."""

    width: float
    height: float


Input = TokenInput | CoordinateInput | SizeInput
"""One position of a sequence, whether it came from the prompt or from the model."""
