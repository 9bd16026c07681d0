"""The facts about one checkpoint: its config, its parts, and the memory that it needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from stoop_worker.engine.config import page_bytes
from stoop_worker.engine.spec import KVSpec
from stoop_worker.inspection.weights import Count, StoredTensor, counted, stored_tensors
from stoop_worker.models.decoder.config import read_decoder_config
from stoop_worker.models.families import family_of
from stoop_worker.models.loading.download import Source
from stoop_worker.models.moondream.config import ModelConfig

__all__ = ["Facts", "Memory", "facts_of"]

_CAST: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Memory:
    """The bytes that a worker needs, with floats in `dtype`: for weights, and for keys and values of one token and of a
    full context.

    None for a model without a KV cache.
    """

    dtype: str
    weights: int
    cache_per_token: int | None = None
    context: int | None = None
    cache_per_context: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A checkpoint. `active_parameters` are used for each token of text, where a mixture of experts leaves some out."""

    name: str
    family: str
    files: Mapping[str, int]
    total: Count
    active_parameters: int
    parts: Mapping[str, Count]
    dtypes: Mapping[str, Count]
    memory: Memory
    config: Mapping[str, Any]


def facts_of(found: Source, dtype: torch.dtype, max_context: int | None = None) -> Facts:
    """Gather the facts; raises `CheckpointError`. `dtype` and `max_context` are those of the worker."""
    document = found.document()
    family = family_of(document).split(".")[2]
    tensors = stored_tensors(found.weights)
    return Facts(
        name=found.identity(document)[0],
        family=family,
        files={path.name: path.stat().st_size for path in found.weights},
        total=counted(tensors),
        active_parameters=_active(family, document, tensors),
        parts=_by(tensors, [_part(tensor.name) for tensor in tensors]),
        dtypes=_by(tensors, [_spelled(tensor.dtype) for tensor in tensors]),
        memory=_memory(family, document, tensors, dtype, max_context),
        config=document,
    )


def _memory(
    family: str,
    document: Mapping[str, Any],
    tensors: Sequence[StoredTensor],
    dtype: torch.dtype,
    max_context: int | None,
) -> Memory:
    weights = sum(tensor.parameters * (dtype if tensor.dtype in _CAST else tensor.dtype).itemsize for tensor in tensors)
    spelled, cache = _spelled(dtype), _cache(family, document)
    if cache is None:
        return Memory(spelled, weights)
    sizes, longest = cache
    context = min(longest, max_context or longest)
    cache_per_token = page_bytes(sizes, dtype, 1)
    return Memory(spelled, weights, cache_per_token, context, context * cache_per_token)


def _cache(family: str, document: Mapping[str, Any]) -> tuple[KVSpec, int] | None:
    """Return the sizes of a model's keys and values, and its longest context."""
    if family == "moondream":
        text = _moondream(document).text
        return KVSpec(text.n_layers, text.n_heads, text.head_dim), text.max_context
    if family in ("decoder", "qwen_vl"):
        config = read_decoder_config(document.get("text_config", document))
        return KVSpec(config.layers, config.key_heads, config.head_dim), config.max_context
    return None


def _active(family: str, document: Mapping[str, Any], tensors: Sequence[StoredTensor]) -> int:
    total = sum(tensor.parameters for tensor in tensors)
    moe = _moondream(document).text.moe if family == "moondream" else None
    if moe is None:
        return total
    experts = sum(tensor.parameters for tensor in tensors if len(tensor.shape) == 3 and ".mlp." in tensor.name)
    return total - experts + experts * moe.experts_per_token // moe.num_experts


def _moondream(document: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig.of(document) if document else ModelConfig()


def _by(tensors: Sequence[StoredTensor], names: Sequence[str]) -> dict[str, Count]:
    groups: dict[str, list[StoredTensor]] = {}
    for name, tensor in zip(names, tensors, strict=True):
        groups.setdefault(name, []).append(tensor)
    return {name: counted(group) for name, group in groups.items()}


def _part(name: str) -> str:
    """Return the first word of a name that identifies a part: text, vision, region, layers, embed_tokens."""
    words = [word for word in name.split(".") if word not in ("model", "_orig_mod")]
    return words[0]


def _spelled(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
