"""Reads one file of a LoRA adapter, of Moondream 2's variants or of Moondream 3's fine-tunes.

R rank, I in, O out, E experts.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from stoop_worker.models.moondream.config_parts import TextConfig

__all__ = ["SUFFIXES", "Pairs", "Place", "key_of", "read_pairs", "shape_at"]

SUFFIXES = (".safetensors", ".pt")
"""The endings of adapter files."""

_OLDER = (
    ("text_model.transformer.h", "text.blocks"),
    (".mixer", ".attn"),
    (".out_proj", ".proj"),
    (".Wqkv", ".qkv"),
    (".parametrizations.weight.0", ""),
)
_PLAIN = re.compile(r"text\.blocks\.(\d+)\.(?:attn|mlp)\.(qkv|proj|fc1|fc2)\.([AB])")
_TUNED = re.compile(r"(?:.*\.)?(dense|moe)\.(\d+)\.(up|down)_([ab])(?:\.weight)?")
_FC = {"up": "fc1", "down": "fc2"}

Place = tuple[int, str]
"""A block, and a linear layer in it; "up" and "down" are those of experts."""

Pairs = Mapping[Place, tuple[Tensor, Tensor]]
"""The halves A (..., R, I) and B (..., O, R) of each layer that an adapter corrects."""


def read_pairs(path: Path, text: TextConfig) -> Pairs:
    """Read an adapter that fits this text model. A damaged file may raise any exception, also from its reader."""
    return _pairs(_read(path), text)


def _read(path: Path) -> Mapping[str, Tensor]:
    loaded = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
    loaded = loaded.get("lora_state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(loaded, Mapping) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise ValueError("it is not a flat dictionary of tensors")
    return loaded


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, "cpu", weights_only=True)
    except UnpicklingError as error:  # torch's message advises the operator, but a job's caller reads it
        raise ValueError("it holds more than tensors, or is damaged") from error


def _pairs(tensors: Mapping[str, Tensor], text: TextConfig) -> dict[Place, tuple[Tensor, Tensor]]:
    """Sort an adapter's tensors into a pair A, B for each layer, and check their shapes."""
    halves: dict[tuple[Place, str], Tensor] = {}
    for stored, tensor in tensors.items():
        place, half = _place_of(stored, text)
        halves[place, half] = tensor
    pairs = {}
    for place in {place for place, _ in halves}:
        if (place, "a") not in halves or (place, "b") not in halves:
            raise ValueError(f"layer {place[0]}, {place[1]}: A or B is missing")
        a, b = _checked(place, halves[place, "a"], halves[place, "b"], text)
        pairs[place] = a, _scaled(place, b, text)
    if not pairs:
        raise ValueError("it has no tensors")
    for layer, name in pairs:
        if name in ("up", "down") and not {(layer, "up"), (layer, "down")} <= set(pairs):
            raise ValueError(f"layer {layer}: experts need up and down")
    return pairs


def _place_of(stored: str, text: TextConfig) -> tuple[Place, str]:
    name = stored
    for old, new in _OLDER:
        name = name.replace(old, new)
    if plain := _PLAIN.fullmatch(name):
        return (int(plain[1]), plain[2]), plain[3].lower()
    if tuned := _TUNED.fullmatch(name):
        kind, index, direction, half = tuned.groups()
        if kind == "dense":
            return (int(index), _FC[direction]), half
        if text.moe is not None:
            return (int(index) + text.moe.start_layer, direction), half
    raise ValueError(f"this model has no place for its tensor {stored}")


def _checked(place: Place, a: Tensor, b: Tensor, text: TextConfig) -> tuple[Tensor, Tensor]:
    sizes = shape_at(place, text)
    rank = a.shape[-2] if a.ndim > 1 else 0
    *experts, out, width = sizes
    if rank < 1 or tuple(a.shape) != (*experts, rank, width) or tuple(b.shape) != (*experts, out, rank):
        raise ValueError(
            f"layer {place[0]}, {place[1]}: shapes {tuple(a.shape)}, {tuple(b.shape)} do not fit the model"
        )
    # rows of other adapters multiply such a value by 0, which is not a number either
    if not all(half.float().isfinite().all() for half in (a, b)):
        raise ValueError(f"layer {place[0]}, {place[1]} has values that are infinite or not a number")
    return a, b


def _scaled(place: Place, b: Tensor, text: TextConfig) -> Tensor:
    """Return an adapter's second half with the model's scale for experts in it, so that no step multiplies by it."""
    if text.moe is None or place[1] not in ("up", "down") or text.moe.adapter_scale == 1:
        return b
    return b * text.moe.adapter_scale


def shape_at(place: Place, text: TextConfig) -> tuple[int, ...]:
    """Return the shape (..., O, I) of the weight at a place; raises ValueError if the model has none there."""
    layer, name = place
    moe = text.moe
    if layer < text.n_layers:
        mixed = moe is not None and layer >= moe.start_layer
        if name in ("qkv", "proj"):
            return (3 * text.dim if name == "qkv" else text.dim, text.dim)
        if moe is not None and mixed and name in ("up", "down"):
            inner = moe.expert_inner_dim
            return (moe.num_experts, *((2 * inner, text.dim) if name == "up" else (text.dim, inner)))
        if not mixed and name in ("fc1", "fc2"):
            return (text.ff_dim, text.dim) if name == "fc1" else (text.dim, text.ff_dim)
    raise ValueError(f"this model has no layer {layer}, {name}")


def key_of(pairs: Pairs) -> int:
    """Return a number of 48 bits that identifies the weights."""
    digest = blake2b(digest_size=6)
    for place in sorted(pairs):
        for half in pairs[place]:
            digest.update(half.float().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")
