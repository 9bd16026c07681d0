"""The encoder port: a model that reads whole texts in one pass, and gives values for each.

All functions run on the engine's thread, except `prepare`, which any thread may call. N texts, V values of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.model import LoadedModel
from stoop_worker.engine.request import Finished, Request, Task, Usage, VectorKind
from stoop_worker.engine.tensors import PackedTexts, TextValues

__all__ = ["Encoder", "EncoderSpec", "Ids", "Text", "Values"]

Ids = tuple[int, ...]
"""The token ids of one text, special tokens included."""

Values = npt.NDArray[np.float32]
"""The values of one text, (V,). V may differ from text to text."""


class Text(NamedTuple):
    """One text to run. Its values depend on nothing else. A model that has only one kind of values ignores `kinds`."""

    ids: Ids
    kinds: tuple[VectorKind, ...] = (VectorKind.DENSE,)


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """An encoder's sizes and capabilities: `width` is the number of values of a vector.

    It takes no images, and samples nothing.
    """

    tasks: tuple[type[Task], ...]
    width: int
    vocab_size: int
    max_context: int
    preparation: None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


@runtime_checkable
class Encoder(LoadedModel, Protocol):
    """A loaded encoder, ready to run in one engine. Its values for a text do not depend on the other texts."""

    @property
    def spec(self) -> EncoderSpec:
        """The model's sizes and capabilities."""

    def prepare_texts(self, request: Request) -> tuple[Text, ...]:
        """Tokenize the texts of a request; raises `RequestInvalid`. Any thread may call it."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return warm-up requests that together fill one step of this engine."""

    def encode_texts(self, packed: PackedTexts) -> TextValues:
        """Return the values of each text."""

    def answer(self, request: Request, texts: Sequence[Text], values: Sequence[Values], usage: Usage) -> Finished:
        """Make the answer from the request's texts and their values, both in their order."""
