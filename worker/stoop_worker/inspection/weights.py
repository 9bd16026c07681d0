"""Counts the parameters and bytes of a checkpoint by part and dtype, from the headers of its files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import safetensors
import torch

from stoop_worker.errors import CheckpointError

__all__ = ["Count", "StoredTensor", "counted", "stored_tensors"]

_DTYPES: Final[Mapping[str, torch.dtype]] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
"""The names in the headers of safetensors."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file, by its stored name."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def parameters(self) -> int:
        """The number of values in the tensor."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Count:
    """Some tensors, their values, and their bytes as they are stored."""

    tensors: int
    parameters: int
    bytes: int


def stored_tensors(files: Iterable[Path]) -> list[StoredTensor]:
    """List the tensors of weight files; raises `CheckpointError` for a file that cannot be read."""
    return [tensor for path in files for tensor in _tensors(path)]


def counted(tensors: Iterable[StoredTensor]) -> Count:
    """Add tensors up."""
    found = list(tensors)
    size = sum(tensor.parameters * tensor.dtype.itemsize for tensor in found)
    return Count(len(found), sum(tensor.parameters for tensor in found), size)


def _tensors(path: Path) -> Iterator[StoredTensor]:
    try:
        if path.suffix == ".safetensors":
            yield from _safetensors(path)
        else:
            opened = torch.load(path, map_location="meta", weights_only=True)
            yield from (StoredTensor(name, tuple(each.shape), each.dtype) for name, each in opened.items())
    except CheckpointError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _safetensors(path: Path) -> Iterator[StoredTensor]:
    opened: Any = safetensors.safe_open(path, framework="pt")
    for name in opened.keys():  # noqa: SIM118 (the file is not a mapping)
        stored = opened.get_slice(name)
        dtype = _DTYPES.get(stored.get_dtype())
        if dtype is None:
            raise CheckpointError(f"{path}: tensor {name} has the dtype {stored.get_dtype()}, which torch lacks")
        yield StoredTensor(name, tuple(stored.get_shape()), dtype)
