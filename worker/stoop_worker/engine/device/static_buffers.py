"""Arrays at fixed addresses on the device, where captured work reads them."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.engine.device.packed_bytes import PackedBytes, padded

__all__ = ["COPIES", "HostArrays", "Kind", "StaticBuffers"]

Kind = tuple[tuple[int, ...], torch.dtype]
"""The shape and the dtype of an array."""

HostArrays = dict[str, npt.NDArray[Any]]
"""Arrays by name."""

COPIES = 3
"""The sets of arrays on the host: one being filled, one being copied, and one for the step ahead."""


class _Block:
    """All the arrays, packed on the host or on the device; at first they are zero."""

    def __init__(self, kinds: Mapping[str, Kind], device: torch.device, *, pinned: bool = False) -> None:
        size = sum(padded(prod(shape) * dtype.itemsize) for shape, dtype in kinds.values())
        self.packed = PackedBytes(torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pinned))
        self.arrays: dict[str, Tensor] = {name: self.packed.take(*kind) for name, kind in kinds.items()}


class _OnHost:
    """A block as numpy arrays for filling; on CUDA the event `sent` marks when it may be filled again."""

    def __init__(self, kinds: Mapping[str, Kind], *, pinned: bool) -> None:
        block = _Block(kinds, torch.device("cpu"), pinned=pinned)
        self.packed = block.packed
        self.arrays: HostArrays = {name: one.numpy() for name, one in block.arrays.items()}
        self.sent = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]


class StaticBuffers:
    """Arrays by name, each with its shape and dtype: laid out on the host, and sent to the device in one copy.

    At first all are zero. The host has several sets in a ring, so a set still has its content from a few sends ago.
    """

    def __init__(self, kinds: Mapping[str, Kind], device: torch.device) -> None:
        self._ring = [_OnHost(kinds, pinned=device.type == "cuda") for _ in range(COPIES)]
        self._next = 0  # the set to fill
        self._device = _Block(kinds, device)

    @property
    def ring(self) -> list[HostArrays]:
        """All sets of arrays on the host, by their numbers; fill only the set that `on_host` returns."""
        return [host.arrays for host in self._ring]

    @property
    def on_device(self) -> dict[str, Tensor]:
        """The arrays on the device."""
        return self._device.arrays

    @property
    def upcoming(self) -> int:
        """The number of the set that `on_host` returns next."""
        return self._next

    def on_host(self) -> HostArrays:
        """Return arrays to fill; this waits only for a copy that started a few sends ago."""
        host = self._ring[self._next]
        if host.sent is not None:
            host.sent.synchronize()
        return host.arrays

    def send(self, *, of_last: int | None = None) -> None:
        """Start the copy of the arrays that `on_host` returned; `of_last` is the values of the last array to send."""
        host = self._ring[self._next]
        self._next = (self._next + 1) % COPIES
        last = next(reversed(host.arrays.values()))
        self._device.packed.copy_from(
            host.packed, without=0 if of_last is None else (last.size - of_last) * last.itemsize
        )
        if host.sent is not None:
            host.sent.record()
