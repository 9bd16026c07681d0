"""A loaded model, and loading one from a folder, a file or a Hugging Face repository."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from worker.errors import CheckpointError
from worker.model.checkpoint import read_checkpoint
from worker.model.config import ModelConfig
from worker.model.download import Download, Source, locate, snapshot
from worker.model.tokenizer import Tokenizer
from worker.model.weights import Weights

__all__ = ["Moondream", "load"]


@dataclass(frozen=True, slots=True)
class Moondream:
    """A model ready to run. `digest` tells models apart in cache keys; `untrained` marks one with made-up weights."""

    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    name: str
    digest: str
    untrained: bool = False

    @classmethod
    def of(cls, config: ModelConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer, *, name: str) -> "Moondream":
        """Build a model from tensors in memory, by their names in a checkpoint."""
        return cls(config, Weights.of(tensors, config), tokenizer, name, _digest(config, tensors, ()))

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights.text.wte.device

    @property
    def dtype(self) -> torch.dtype:
        """What the weights are made of."""
        return self.weights.text.wte.dtype


def load(
    source: str | Path,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    revision: str | None = None,
    download: Download = snapshot,
) -> Moondream:
    """Load a model from a local folder, a weight file beside its config, or a Hugging Face repository.

    A repository needs a pinned `revision`; for vikhyatk/moondream2 there is a default. Weights become `dtype`.
    Raises `CheckpointError` saying what is wrong and what to do.
    """
    found: Source = locate(source, revision, download)
    document, config = found.config()
    tensors = read_checkpoint(found.weights, config, device=torch.device(device), dtype=dtype)
    card = document.get("stoop", {})
    if not isinstance(card, Mapping):
        raise CheckpointError('config: "stoop" must be an object')
    return Moondream(
        config=config,
        weights=Weights.of(tensors, config),
        tokenizer=found.tokenizer(config, download),
        name=str(card.get("name", found.name)),
        digest=_digest(config, tensors, found.weights),
        untrained=bool(card.get("untrained", False)),
    )


def _digest(config: ModelConfig, tensors: Mapping[str, Tensor], files: tuple[Path, ...]) -> str:
    """Digest config, names, shapes, dtypes, file sizes, and one small tensor's values: all cheap to have."""
    witness = tensors["text.post_ln.bias"].detach().double().cpu().tolist()
    facts = (
        config.document(),
        sorted((name, list(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()),
        [path.stat().st_size for path in files],
        witness,
    )
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
