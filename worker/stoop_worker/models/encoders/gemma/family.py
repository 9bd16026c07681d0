"""Loads embeddinggemma from its files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stoop_worker.engine.encoder import Encoder
from stoop_worker.errors import CheckpointError, ConfigError
from stoop_worker.models.encoders.embedder import Embedder
from stoop_worker.models.encoders.gemma.config import GemmaConfig, read_config
from stoop_worker.models.encoders.gemma.network import GemmaNetwork
from stoop_worker.models.encoders.gemma.weights import GemmaWeights, expected_shapes, present_name
from stoop_worker.models.encoders.loaded import Loaded, poolings
from stoop_worker.models.encoders.text_ids import TextIds
from stoop_worker.models.loading.checkpoint import check_exactly, read_checkpoint, weight_files
from stoop_worker.models.loading.config_file import read_document
from stoop_worker.models.loading.digest import digest_of
from stoop_worker.models.loading.download import Download, Source
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["open_model"]

_DENSE_LAYERS = ("2_Dense", "3_Dense")
_DENSE = "linear.weight"
_IDENTITY = "torch.nn.modules.linear.Identity"


def open_model(found: Source, options: LoadOptions, download: Download) -> Encoder:
    """Load a model from the files found; raises `CheckpointError`, or `ConfigError` for float16."""
    if options.dtype is torch.float16:
        raise ConfigError("this model overflows in float16: choose bfloat16 or float32")
    if options.fp8_linears:
        raise ConfigError("--fp8-linears is for Moondream and XLM-RoBERTa: leave it off")
    document = found.document()
    config = read_config(document)
    if not poolings(found.folder) <= {"mean_tokens"}:
        raise CheckpointError("1_Pooling/config.json asks for another pooling than the mean of all tokens")
    texts = TextIds.read(found, config.vocab_size, min(config.max_context, options.max_context))
    tensors = read_checkpoint(
        found.weights,
        present_name,
        lambda shapes: check_exactly(shapes, expected_shapes(config)),
        options,
    )
    digest = digest_of(document, tensors, found.weights, "norm.weight")
    weights = GemmaWeights.of(tensors, _denses(found.folder, config, options.device), config)
    name, untrained = found.identity(document)
    loaded = Loaded(
        network=GemmaNetwork(weights, config, texts.most),
        texts=texts,
        width=config.dim,
        vocab_size=config.vocab_size,
        name=name,
        digest=digest,
        untrained=untrained,
        device=options.device,
        dtype=options.dtype,
    )
    return Embedder(loaded, prompts=_prompts(found.folder), shortens=True)


def _denses(folder: Path, config: GemmaConfig, device: torch.device) -> tuple[Tensor, ...]:
    """Read the layers over the mean: the first widens it, the second brings it back."""
    first, second = (_dense(folder / layer, device) for layer in _DENSE_LAYERS)
    if first.shape[1] != config.dim or second.shape != first.t().shape:
        raise CheckpointError(f"{_DENSE_LAYERS} have shapes {tuple(first.shape)} and {tuple(second.shape)}")
    return first, second


def _dense(folder: Path, device: torch.device) -> Tensor:
    settings = folder / "config.json"
    activation = read_document(settings).get("activation_function") if settings.exists() else _IDENTITY
    if activation != _IDENTITY:
        raise CheckpointError(f"{settings}: activation_function is {activation!r}: expected {_IDENTITY!r}")
    tensors = read_checkpoint(
        weight_files(folder), lambda name: (name, False), _check_dense, LoadOptions(device, torch.float32)
    )
    return tensors[_DENSE]


def _check_dense(shapes: Mapping[str, tuple[int, ...]]) -> None:
    if list(shapes) != [_DENSE] or len(shapes[_DENSE]) != 2:
        raise CheckpointError(f"a dense layer has the tensors {', '.join(shapes)}: expected only {_DENSE}, a matrix")


def _prompts(folder: Path) -> Mapping[str, str]:
    path = folder / "config_sentence_transformers.json"
    prompts: Any = read_document(path).get("prompts") if path.exists() else None
    return {str(name): str(prompt) for name, prompt in (prompts or {}).items()}
