"""A loaded model, and loading one from a folder, a file or a Hugging Face repository."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from stoop_worker.engine.grammars.grammars import Grammars
from stoop_worker.models.loading.checkpoint import read_checkpoint
from stoop_worker.models.loading.download import Download, Source, locate, snapshot
from stoop_worker.models.loading.options import LoadOptions
from stoop_worker.models.loading.tokenizer import Tokenizer
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.files import read_config, read_tokenizer
from stoop_worker.models.moondream.names import present_name
from stoop_worker.models.moondream.shapes import check_shapes, is_scale
from stoop_worker.models.moondream.weights import Weights

__all__ = ["Moondream", "load", "load_found"]


@dataclass(frozen=True, slots=True)
class Moondream:
    """A model ready to run. `digest` identifies it in cache keys; `untrained` marks random weights."""

    config: ModelConfig
    weights: Weights
    tokenizer: Tokenizer
    grammars: Grammars
    name: str
    digest: str
    untrained: bool = False

    @classmethod
    def of(cls, config: ModelConfig, tensors: Mapping[str, Tensor], tokenizer: Tokenizer, *, name: str) -> "Moondream":
        """Build a model from tensors in memory, by their names in a checkpoint."""
        grammars = _grammars(tokenizer, config)
        return cls(config, Weights.of(tensors, config), tokenizer, grammars, name, _digest(config, tensors, ()))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weights.text.wte.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
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
    Raises a `CheckpointError` that names the fault and the remedy.
    """
    found = locate(source, revision, download)
    return load_found(found, LoadOptions(torch.device(device), dtype), download)


def load_found(found: Source, options: LoadOptions, download: Download) -> Moondream:
    """Load a model from the files found; downloads the tokenizer if it is missing."""
    document, config = read_config(found)
    tokenizer = read_tokenizer(found, config, download)
    grammars = _grammars(tokenizer, config)
    tensors = read_checkpoint(
        found.weights,
        present_name,
        lambda shapes: check_shapes(shapes, config),
        options,
        exact=is_scale,
    )
    name, untrained = found.identity(document)
    return Moondream(
        config=config,
        weights=Weights.of(tensors, config),
        tokenizer=tokenizer,
        grammars=grammars,
        name=name,
        digest=_digest(config, tensors, found.weights),
        untrained=untrained,
    )


def _grammars(tokenizer: Tokenizer, config: ModelConfig) -> Grammars:
    return Grammars(tokenizer.document, size=config.text.vocab_size, ends=config.tokenizer.ends)


def _digest(config: ModelConfig, tensors: Mapping[str, Tensor], files: tuple[Path, ...]) -> str:
    """Digest config, names, shapes, dtypes, file sizes, and one small tensor's values, which are all cheap to read."""
    witness = tensors["text.post_ln.bias"].detach().double().cpu().tolist()
    facts = (
        config.document(),
        sorted((name, list(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()),
        [path.stat().st_size for path in files],
        witness,
    )
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()
