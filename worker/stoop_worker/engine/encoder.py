"""The encoder port: a model that reads whole texts in one pass, and gives a fixed number of values for each.

All functions run on the engine's thread, except `prepare`, which any thread may call. N texts, V values of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.model import LoadedModel
from stoop_worker.engine.request import Finished, Request, Task, Usage
from stoop_worker.engine.tensors import PackedTexts, Tensor

__all__ = ["Encoder", "EncoderSpec", "Ids", "Values"]

Ids = tuple[int, ...]
"""The token ids of one text, special tokens included."""

Values = npt.NDArray[np.float32]
"""The values of one text, (V,)."""


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """An encoder's sizes and capabilities: `width` is the number of values of each text. It takes no images."""

    tasks: tuple[type[Task], ...]
    width: int
    vocab_size: int
    max_context: int
    preparation: None = None


@runtime_checkable
class Encoder(LoadedModel, Protocol):
    """A loaded encoder, ready to run in one engine. Its values for a text do not depend on the other texts."""

    @property
    def spec(self) -> EncoderSpec:
        """The model's sizes and capabilities."""

    def prepare_texts(self, request: Request) -> tuple[Ids, ...]:
        """Tokenize the texts of a request; raises `RequestInvalid`. Any thread may call it."""

    def rehearsal(self, config: EngineConfig) -> list[Request]:
        """Return requests that together fill a step of this engine, which answers them before it takes work."""

    def encode_texts(self, packed: PackedTexts) -> Tensor:
        """Return the values of each text, (N, V) float32."""

    def answer(self, request: Request, values: Sequence[Values], usage: Usage) -> Finished:
        """Make the answer from the values of the request's texts, in their order."""
