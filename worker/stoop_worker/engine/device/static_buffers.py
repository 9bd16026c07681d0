"""Arrays at fixed places on the device, so that captured work finds them there."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["FixedArrays", "HostArrays", "Kind"]

Kind = tuple[tuple[int, ...], torch.dtype]
"""The shape and the dtype of an array."""

HostArrays = dict[str, npt.NDArray[Any]]
"""Arrays by name."""

_COPIES = 3  # one being filled, one being copied, and one for the step ahead
_ALIGNMENT = 16  # no dtype is wider


class _Block:
    """One stretch of bytes with all the arrays in it, on the host or on the device."""

    def __init__(self, kinds: Mapping[str, Kind], device: torch.device, *, pinned: bool = False) -> None:
        sizes = [_aligned(prod(shape) * dtype.itemsize) for shape, dtype in kinds.values()]
        self.bytes = torch.zeros(sum(sizes), dtype=torch.uint8, device=device, pin_memory=pinned)
        parts = self.bytes.split(sizes)  # type: ignore[no-untyped-call]
        self.arrays: dict[str, Tensor] = {
            name: part[: prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for (name, (shape, dtype)), part in zip(kinds.items(), parts, strict=True)
        }


class _OnHost:
    """A block as numpy's arrays, to be filled; on CUDA `sent` tells when it may be filled again."""

    def __init__(self, kinds: Mapping[str, Kind], *, pinned: bool) -> None:
        block = _Block(kinds, torch.device("cpu"), pinned=pinned)
        self.bytes = block.bytes
        self.arrays: HostArrays = {name: one.numpy() for name, one in block.arrays.items()}
        self.sent = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]


class FixedArrays:
    """Arrays by name, each with its shape and dtype: laid out on the host, and sent to their places by one copy.

    At first all are zero. On the host they take turns: what is found there was written some turns ago.
    """

    def __init__(self, kinds: Mapping[str, Kind], device: torch.device) -> None:
        self._ring = [_OnHost(kinds, pinned=device.type == "cuda") for _ in range(_COPIES)]
        self._turn = 0
        self._device = _Block(kinds, device)

    @property
    def on_device(self) -> dict[str, Tensor]:
        """The arrays at their places."""
        return self._device.arrays

    def on_host(self) -> HostArrays:
        """Return arrays to be filled; waits only for a copy that was started some turns ago."""
        host = self._ring[self._turn]
        if host.sent is not None:
            host.sent.synchronize()
        return host.arrays

    def send(self) -> None:
        """Start the copy of what `on_host` gave."""
        host = self._ring[self._turn]
        self._turn = (self._turn + 1) % _COPIES
        self._device.bytes.copy_(host.bytes, non_blocking=True)
        if host.sent is not None:
            host.sent.record()


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
