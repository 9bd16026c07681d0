"""A loaded network, the facts that the engine asks for, and how it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.encoder import EncoderSpec
from stoop_worker.engine.request import Task, VectorKind
from stoop_worker.engine.tensors import PackedTexts, TextValues
from stoop_worker.models.encoders.text_ids import TextIds
from stoop_worker.models.loading.config_file import read_document

__all__ = ["Loaded", "Network", "TextModel", "poolings"]

Network = Callable[[PackedTexts], TextValues]
"""Takes packed texts; returns their values."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network with its tokenizer. `width` is the number of values of a vector; `untrained` marks random weights.

    `kinds` are the kinds of vectors that the network can give.
    """

    network: Network
    texts: TextIds
    width: int
    vocab_size: int
    name: str
    digest: str
    untrained: bool
    device: torch.device
    dtype: torch.dtype
    kinds: tuple[VectorKind, ...] = (VectorKind.DENSE,)


class TextModel:
    """The part of the engine's port that vectors and scores share."""

    def __init__(self, loaded: Loaded, task: type[Task]) -> None:
        self._loaded = loaded
        self.spec = EncoderSpec((task,), loaded.width, loaded.vocab_size, loaded.texts.most)
        self.name = loaded.name
        self.digest = loaded.digest
        self.untrained = loaded.untrained
        self.device = loaded.device
        self.dtype = loaded.dtype

    def encode_texts(self, packed: PackedTexts) -> TextValues:
        """Return the values of each text."""
        return self._loaded.network(packed)

    def _warm_up_texts(self, config: EngineConfig) -> tuple[str, ...]:
        """Return texts; on a GPU they fill a step, which shows that a full step fits into memory."""
        length = min(config.token_budget, self.spec.max_context) if self.device.type != "cpu" else 1
        count = config.token_budget // length if length > 1 else 1
        return tuple(f"{number} " + "warm up " * length for number in range(count))


def poolings(folder: Path) -> set[str]:
    """Return the poolings of tokens' hidden states that the files name, such as {"cls_token"}; empty if no file names
    one.
    """
    path = folder / "1_Pooling" / "config.json"
    settings = read_document(path) if path.exists() else {}
    stem = "pooling_mode_"
    return {name.removeprefix(stem) for name, chosen in settings.items() if name.startswith(stem) and chosen is True}
