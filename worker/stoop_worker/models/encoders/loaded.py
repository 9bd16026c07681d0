"""A loaded network, and the facts that the engine asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.models.encoders.text_ids import TextIds
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.loading.download import Source

__all__ = ["Loaded", "Network", "name_of", "poolings"]

Network = Callable[[PackedTexts], Tensor]
"""Takes N packed texts; returns their values, (N, V) float32."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network with its tokenizer. `width` is the number of values of a text; `untrained` marks random weights."""

    network: Network
    texts: TextIds
    width: int
    vocab_size: int
    name: str
    digest: str
    untrained: bool
    device: torch.device
    dtype: torch.dtype


def name_of(found: Source, document: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the model's name, and whether its weights are random."""
    card = document.get("stoop") or {}
    return str(card.get("name", found.name)), bool(card.get("untrained", False))


def poolings(folder: Path) -> set[str]:
    """Return the ways in which the files say that the hidden states of tokens become one, such as {"cls_token"}.

    The set is empty if no file says it.
    """
    path = folder / "1_Pooling" / "config.json"
    settings = read_document(path) if path.exists() else {}
    stem = "pooling_mode_"
    return {name.removeprefix(stem) for name, chosen in settings.items() if name.startswith(stem) and chosen is True}
