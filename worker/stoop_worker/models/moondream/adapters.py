"""Reads a folder of LoRA adapters, and numbers them from 1. An adapter that cannot be used is kept with the reason.

K columns of all adapters, R rank, I in, O out, E experts.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor

from stoop_worker.engine.model import RequestInvalid
from stoop_worker.engine.positions import Positions
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.moe import ExpertAdapter
from stoop_worker.models.moondream.config_parts import TextConfig
from stoop_worker.models.moondream.lora import Adapter, BlockAdapters, Corrections

__all__ = ["AdapterBank", "AdapterPositions", "Loaded", "read_adapters"]

_SUFFIXES = (".safetensors", ".pt")
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

_Place = tuple[int, str]
"""A block, and a linear layer in it; "up" and "down" are those of experts."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One adapter's place. `key` identifies its weights, in a number that a float64 holds exactly."""

    number: int
    key: int

    def digest(self, of_image: bytes) -> bytes:
        """Return the digest of an image under this adapter."""
        return of_image if not self.number else blake2b(of_image + self.key.to_bytes(6), digest_size=16).digest()


@dataclass(frozen=True, slots=True, eq=False)
class AdapterPositions(Positions):
    """An index is its own position; on the second axis it has the adapter's number."""

    number: int = 0

    def at(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the positions of the indices [start, end), (end - start, 2)."""
        return np.stack((np.arange(start, end), np.full(end - start, self.number)), axis=1)


@dataclass(frozen=True, slots=True)
class AdapterBank:
    """All adapters of a worker by id, on the model's device. `broken` has the reason for each that cannot be used."""

    loaded: Mapping[str, Loaded] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    blocks: tuple[BlockAdapters, ...] = ()
    ranks: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return bool(self.loaded)

    def find(self, adapter: str | None) -> Loaded:
        """Return an adapter's number and key; number 0 stands for none; raises `RequestInvalid`."""
        if adapter is None:
            return Loaded(0, 0)
        if adapter in self.broken:
            raise RequestInvalid(f"the adapter {adapter!r} cannot be used: {self.broken[adapter]}")
        if adapter not in self.loaded:
            known = ", ".join(sorted(self.loaded)) or "none: start the worker with --adapters"
            raise RequestInvalid(f"there is no adapter {adapter!r} here; there is {known}")
        return self.loaded[adapter]

    def corrections(self, numbers_T: Tensor, like: Tensor) -> Corrections:
        """Return the corrections for rows of these numbers."""
        return Corrections.of(self.blocks, numbers_T, count=len(self.loaded) + 1, ranks=self.ranks, like=like)


def read_adapters(folder: Path, text: TextConfig, *, device: torch.device, dtype: torch.dtype) -> AdapterBank:
    """Read every adapter file of a folder; its name without the suffix is the adapter's id."""
    if not folder.is_dir():
        raise ConfigError(f"--adapters {folder}: there is no such folder")
    whole: dict[str, dict[_Place, tuple[Tensor, Tensor]]] = {}
    broken: dict[str, str] = {}
    for path in sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES):
        try:
            whole[path.stem] = _pairs(_read(path), text)
        except Exception as error:  # a damaged file raises what it likes, and spoils its own jobs alone
            broken[path.stem] = str(error)
    loaded = {name: Loaded(number, _key(pairs)) for number, (name, pairs) in enumerate(whole.items(), start=1)}
    lay = partial(_lay, list(whole.values()), device=device, dtype=dtype)
    blocks = tuple(_block(layer, lay) for layer in range(text.n_layers)) if whole else ()
    return AdapterBank(loaded, broken, blocks, _ranks(list(whole.values())))


def _read(path: Path) -> Mapping[str, Tensor]:
    loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    loaded = loaded.get("lora_state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(loaded, Mapping) or not all(isinstance(tensor, Tensor) for tensor in loaded.values()):
        raise ValueError("it is no flat dictionary of tensors")
    return loaded


def _pairs(tensors: Mapping[str, Tensor], text: TextConfig) -> dict[_Place, tuple[Tensor, Tensor]]:
    """Sort an adapter's tensors into a pair A, B for each layer, and check their shapes."""
    halves: dict[tuple[_Place, str], Tensor] = {}
    for stored, tensor in tensors.items():
        place, half = _place_of(stored, text)
        halves[place, half] = tensor
    pairs = {}
    for place in {place for place, _ in halves}:
        if (place, "a") not in halves or (place, "b") not in halves:
            raise ValueError(f"layer {place[0]}, {place[1]}: A or B is missing")
        pairs[place] = _checked(place, halves[place, "a"], halves[place, "b"], text)
    if not pairs:
        raise ValueError("it has no tensors")
    for layer, name in pairs:
        if name in ("up", "down") and not {(layer, "up"), (layer, "down")} <= set(pairs):
            raise ValueError(f"layer {layer}: experts need up and down")
    return pairs


def _place_of(stored: str, text: TextConfig) -> tuple[_Place, str]:
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


def _checked(place: _Place, a: Tensor, b: Tensor, text: TextConfig) -> tuple[Tensor, Tensor]:
    sizes = _sizes(place, text)
    rank = a.shape[-2] if a.ndim > 1 else 0
    *experts, out, width = sizes
    if rank < 1 or tuple(a.shape) != (*experts, rank, width) or tuple(b.shape) != (*experts, out, rank):
        raise ValueError(
            f"layer {place[0]}, {place[1]}: shapes {tuple(a.shape)}, {tuple(b.shape)} do not fit the model"
        )
    return a, b


def _sizes(place: _Place, text: TextConfig) -> tuple[int, ...]:
    """Return the shape of the weight at a place."""
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


def _key(pairs: Mapping[_Place, tuple[Tensor, Tensor]]) -> int:
    digest = blake2b(digest_size=6)
    for place in sorted(pairs):
        for half in pairs[place]:
            digest.update(half.float().contiguous().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")


def _ranks(adapters: list[dict[_Place, tuple[Tensor, Tensor]]]) -> tuple[int, int]:
    """Return the largest rank of plain layers, and that of experts."""

    def largest(*, experts: bool) -> int:
        return max(
            (a.shape[-2] for pairs in adapters for a, _ in pairs.values() if (a.ndim == 3) is experts), default=1
        )

    return largest(experts=False), largest(experts=True)


def _lay(
    adapters: list[dict[_Place, tuple[Tensor, Tensor]]], place: _Place, *, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor] | None:
    """Lay one layer's pairs of all adapters side by side, from number 1 on: (…, K, I) and (…, K, O)."""
    given = [(number, pairs[place]) for number, pairs in enumerate(adapters, start=1) if place in pairs]
    if not given:
        return None
    a, b = given[0][1]
    rank = _ranks(adapters)[a.ndim == 3]
    count = rank * (len(adapters) + 1)
    a_all = torch.zeros(*a.shape[:-2], count, a.shape[-1], dtype=dtype, device=device)
    b_all = torch.zeros(*b.shape[:-2], count, b.shape[-2], dtype=dtype, device=device)
    for number, (one_a, one_b) in given:
        columns = slice(number * rank, number * rank + one_a.shape[-2])
        a_all[..., columns, :] = one_a.to(device, dtype)
        b_all[..., columns, :] = one_b.to(device, dtype).transpose(-1, -2)
    return a_all, b_all


def _block(layer: int, lay: "partial[tuple[Tensor, Tensor] | None]") -> BlockAdapters:
    linears = dict(_linears(layer, lay))
    up, down = lay((layer, "up")), lay((layer, "down"))
    if up is None or down is None:
        return BlockAdapters(linears)
    return BlockAdapters(linears, ExpertAdapter(*up, *down))


def _linears(layer: int, lay: "partial[tuple[Tensor, Tensor] | None]") -> Iterator[tuple[str, Adapter]]:
    for name in ("qkv", "proj", "fc1", "fc2"):
        pair = lay((layer, name))
        if pair is not None:
            yield name, Adapter(*pair)
