"""The inputs of a sequence: values that can be hashed, cached and fed again. Each is one or more positions wide."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

__all__ = ["TOKEN", "Input", "MediaInput", "TokenInput", "ValuesInput", "token_input", "token_inputs", "width_of"]

TOKEN = 0
"""The kind of every token input; a family numbers its other kinds from 1."""


class TokenInput(NamedTuple):
    """A token, embedded by its id; one position. A tuple, because the prefix cache compares and hashes very many."""

    id: int


@dataclass(frozen=True, slots=True)
class ValuesInput:
    """Numbers that the family embeds, such as a coordinate; one position. `kind` is the family's own number, not 0."""

    kind: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class MediaInput:
    """An encoded image or sound of `width` positions, which cache, scheduler and encoder never split.

    Inputs with the same `digest` and `width` have the same embeddings. `cost` is the encoder's work on it, in the
    family's own unit (Moondream: crops).
    """

    digest: bytes
    width: int
    cost: int = field(default=1, compare=False)


Input = TokenInput | ValuesInput | MediaInput
"""One input of a sequence, from the prompt or from the model."""


token_input = lru_cache(1 << 14)(TokenInput)
"""Returns the input of a token. Common ones are made once, because a long prompt has very many."""


def token_inputs(ids: Iterable[int]) -> list[Input]:
    """Return the inputs of tokens."""
    return list(map(token_input, ids))


def width_of(inputs: Iterable[Input]) -> int:
    """Return how many positions the inputs take."""
    return sum(fed.width if isinstance(fed, MediaInput) else 1 for fed in inputs)
