"""Reading a checkpoint's tensors under the names that a family gives them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError

__all__ = ["CheckShapes", "PresentName", "check_exactly", "read_checkpoint", "weight_files"]

PresentName = Callable[[str], tuple[str, bool] | None]
"""Takes a stored tensor's name; returns its present one and whether it is stored transposed; None for no weight."""

CheckShapes = Callable[[Mapping[str, tuple[int, ...]]], None]
"""Takes all shapes by present name; raises `CheckpointError` if they are not the model's."""

_CAST = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INDEX = "model.safetensors.index.json"
_PICKLED = (".pt", ".bin")


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
    pickled = folder / "pytorch_model.bin"
    found = sorted(folder.glob("*.safetensors")) or ([pickled] if pickled.exists() else sorted(folder.glob("*.pt")))
    if len(found) != 1:
        what = "no weights" if not found else f"{len(found)} weight files and no {_INDEX}"
        raise CheckpointError(f"{folder} has {what}: model.safetensors is expected")
    return (found[0],)


def read_checkpoint(
    files: tuple[Path, ...],
    present_name: PresentName,
    check: CheckShapes,
    *,
    device: torch.device,
    dtype: torch.dtype | None,
    exact: Callable[[str], bool] = lambda name: False,
) -> dict[str, Tensor]:
    """Read every tensor to a device, by its present name.

    Names and shapes are checked before anything is read. Floats become `dtype`; without one each tensor keeps its own.
    Float8 and whole numbers always keep theirs, and so do the tensors that `exact` names, such as scales.
    """
    stored: dict[str, _Stored] = {}
    for path in files:
        for name, tensor in _open(path, present_name):
            if name.endswith(".packed"):
                raise CheckpointError(f"{path} holds int4 weights ({name}): take the bfloat16 checkpoint")
            if name in stored:
                raise CheckpointError(f"{path} holds tensor {name} a second time")
            stored[name] = tensor
    check({name: tensor.shape for name, tensor in stored.items()})
    return {name: _place(tensor, device, None if exact(name) else dtype) for name, tensor in stored.items()}


def check_exactly(shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `CheckpointError` unless these are exactly the expected names, with their shapes."""
    for what, names in (("lacks", expected.keys() - shapes.keys()), ("has unknown", shapes.keys() - expected.keys())):
        if names:
            raise CheckpointError(
                f"the checkpoint {what} tensors: {', '.join(sorted(names)[:8])} ({len(names)} in all)"
            )
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise CheckpointError(f"tensor {name} has shape {shapes[name]}: its config says {shape}")


def _place(stored: _Stored, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    found = stored.read()
    tensor = found.to(device=device, dtype=dtype if found.dtype in _CAST else None)
    return tensor.t().contiguous() if stored.transposed else tensor


def _shards(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is not an index of shards: it needs a weight_map") from error
    paths = tuple(index.parent / Path(str(name)).name for name in names)
    for path in paths:
        if not path.exists():
            raise CheckpointError(f"{index} names {path.name}, which does not exist")
    return paths


def _open(path: Path, present_name: PresentName) -> Iterator[tuple[str, _Stored]]:
    for key, shape, read in _open_pt(path) if path.suffix in _PICKLED else _open_safetensors(path):
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
