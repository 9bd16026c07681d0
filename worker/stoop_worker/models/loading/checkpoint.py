"""Reading a checkpoint's tensors under the names that a family gives them.

The files are mapped, not read: a tensor that needs no conversion on a CPU stays in its file's pages, and any other is
copied from them one at a time. So the host's memory holds the weights once, and a small part of a file.
"""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.loading.options import LoadOptions

__all__ = ["CheckShapes", "PresentName", "check_exactly", "read_checkpoint", "weight_files"]

PresentName = Callable[[str], tuple[str, bool] | None]
"""Takes a stored tensor's name; returns its present one and whether it is stored transposed; None for no weight."""

CheckShapes = Callable[[Mapping[str, tuple[int, ...]]], None]
"""Takes all shapes by present name; raises `CheckpointError` if they are not the model's."""

_CAST = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INDEX = "model.safetensors.index.json"
_PICKLED = (".pt", ".bin")
_MAPPED_BYTES = 256 << 20  # of a file that stay mapped after they were copied


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
    options: LoadOptions,
    *,
    exact: Callable[[str], bool] = lambda name: False,
) -> dict[str, Tensor]:
    """Read every tensor to the options' device, by its present name.

    Names and shapes are checked before anything is read. Floats become the options' dtype. Float8 and whole numbers
    keep theirs, and so do the tensors that `exact` names, such as scales.
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
    read, total = 0, sum(path.stat().st_size for path in files)
    placed: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        found = tensor.read()
        placed[name] = _place(found, tensor, options.device, None if exact(name) else options.dtype)
        read += found.nbytes
        options.on_read(read, total)
    return placed


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


def _place(found: Tensor, stored: _Stored, device: torch.device, dtype: torch.dtype | None) -> Tensor:
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
        mapped = _MappedFile(path)
        keys = list(mapped.opened.offset_keys())
    except (OSError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    for key in keys:
        yield key, tuple(mapped.opened.get_slice(key).get_shape()), partial(mapped.read, key)


class _MappedFile:
    """A safetensors file, mapped again after every `_MAPPED_BYTES`: pages that were copied leave the process's memory.

    A tensor that still lies in an earlier mapping keeps it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.opened: Any = safetensors.safe_open(path, framework="pt")

    def read(self, key: str) -> Tensor:
        if self._read > _MAPPED_BYTES:
            self.opened, self._read = safetensors.safe_open(self._path, framework="pt"), 0
        found: Tensor = self.opened.get_tensor(key)
        self._read += found.nbytes
        return found


def _open_pt(path: Path) -> Iterator[_Entry]:
    try:
        # files of torch before 1.6 are no archives, and cannot be mapped
        opened = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # pickle may raise anything on a damaged file
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(opened, dict) or not all(isinstance(tensor, Tensor) for tensor in opened.values()):
        raise CheckpointError(f"{path} must hold a flat dictionary of tensors")
    for key, tensor in opened.items():
        yield key, tuple(tensor.shape), partial(_same, tensor)


def _same(tensor: Tensor) -> Tensor:
    return tensor
