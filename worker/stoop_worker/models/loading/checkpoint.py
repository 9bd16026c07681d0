"""Reading a checkpoint's tensors under their present names, whichever scheme the file uses."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from worker.errors import CheckpointError
from worker.model.config import ModelConfig
from worker.model.names import present_name
from worker.model.weights import check_shapes

__all__ = ["read_checkpoint", "weight_files"]

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class _Stored:
    """A tensor still in its file."""

    shape: tuple[int, ...]
    transposed: bool
    read: Callable[[], Tensor]


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return a folder's weight files: the shards its index names, or its only file of weights."""
    index = folder / _INDEX
    if index.exists():
        return _shards(index)
    named = folder / "model.safetensors"
    if named.exists():
        return (named,)
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.pt"))
    if len(found) != 1:
        what = "no weights" if not found else f"{len(found)} weight files and no {_INDEX}"
        raise CheckpointError(f"{folder} has {what}: model.safetensors is expected")
    return (found[0],)


def read_checkpoint(
    files: tuple[Path, ...], config: ModelConfig, *, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Read every tensor to a device and dtype, by its present name.

    Names and shapes are checked against the config before anything is read. Buffers that are not weights (rotary
    tables, masks, caches) are passed over.
    """
    stored: dict[str, _Stored] = {}
    for path in files:
        for name, tensor in _open(path):
            if name.endswith(".packed"):
                raise CheckpointError(f"{path} holds int4 weights ({name}): take the bfloat16 checkpoint")
            if name in stored:
                raise CheckpointError(f"{path} holds tensor {name} a second time")
            stored[name] = tensor
    check_shapes({name: tensor.shape for name, tensor in stored.items()}, config)
    return {name: _place(tensor, device, dtype) for name, tensor in stored.items()}


def _place(stored: _Stored, device: torch.device, dtype: torch.dtype) -> Tensor:
    tensor = stored.read().to(device=device, dtype=dtype)
    return tensor.t().contiguous() if stored.transposed else tensor


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is not an index of shards: it needs a weight_map") from error
    paths = tuple(index.parent / Path(str(name)).name for name in names)
    for path in paths:
        if not path.exists():
            raise CheckpointError(f"{index} names {path.name}, which is not there")
    return paths


def _open(path: Path) -> Iterator[tuple[str, _Stored]]:
    for key, shape, read in _open_pt(path) if path.suffix == ".pt" else _open_safetensors(path):
        named = present_name(key)
        if named is None:
            continue
        name, transposed = named
        yield name, _Stored(shape[::-1] if transposed else shape, transposed, read)


_Entry = tuple[str, tuple[int, ...], Callable[[], Tensor]]


def _open_safetensors(path: Path) -> Iterator[_Entry]:
    try:
        opened: Any = safetensors.safe_open(path, framework="pt")
        keys = list(opened.keys())
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    for key in keys:
        yield key, tuple(opened.get_slice(key).get_shape()), partial(opened.get_tensor, key)


def _open_pt(path: Path) -> Iterator[_Entry]:
    try:
        opened = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle raises what it likes on a damaged file
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(opened, dict) or not all(isinstance(tensor, Tensor) for tensor in opened.values()):
        raise CheckpointError(f"{path} must hold a flat dictionary of tensors")
    for key, tensor in opened.items():
        yield key, tuple(tensor.shape), partial(_same, tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor
