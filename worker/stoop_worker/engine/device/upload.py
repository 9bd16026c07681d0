"""Host values to the device, all of a batch in one copy."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["ToDevice", "Upload"]

ToDevice = Callable[[object, torch.dtype], Tensor]
"""Takes nested numbers or an array, and a dtype; returns a tensor of it."""

_BLOCK_BYTES = 256 * 1024  # more than nearly every batch needs
_ALIGNMENT = 16  # no dtype is wider


@dataclass(slots=True)
class _Block:
    """Bytes on the host, pinned where the device is CUDA, and as many on the device; the first `used` are taken."""

    host: Tensor
    device: Tensor
    used: int = 0

    @classmethod
    def of(cls, count: int, device: torch.device) -> "_Block":
        # made anew for each batch: torch gives pinned memory out again only when the copies from it are done
        host = torch.empty(count, dtype=torch.uint8, pin_memory=device.type == "cuda")
        return cls(host, torch.empty(count, dtype=torch.uint8, device=device))

    def put(self, values: Tensor) -> Tensor:
        """Write to the host's side; return the view of the device's side that will hold the same."""
        start, end = self.used, self.used + values.nbytes
        self.host[start:end].view(values.dtype).view(values.shape).copy_(values)
        self.used = -(-end // _ALIGNMENT) * _ALIGNMENT
        return self.device[start:end].view(values.dtype).view(values.shape)


class Upload:
    """Gives out tensors at once; what is in them is there after `send`. Nothing waits for the device.

    On the CPU the tensors are the values themselves, unless `packed` asks for what other devices get.
    """

    def __init__(self, device: torch.device, *, packed: bool = False) -> None:
        self._device = device
        self._packed = packed or device.type != "cpu"
        self._blocks: list[_Block] = []

    def to_device(self, values: object, dtype: torch.dtype) -> Tensor:
        """Return the tensor of nested numbers or of an array, on the device."""
        on_host = torch.as_tensor(np.asarray(values), dtype=dtype)
        return self._room(on_host.nbytes).put(on_host) if self._packed else on_host

    def send(self) -> None:
        """Start the copies, after which nothing more may be taken in."""
        for block in self._blocks:
            block.device[: block.used].copy_(block.host[: block.used], non_blocking=True)
        self._blocks.clear()

    def _room(self, count: int) -> _Block:
        if not self._blocks or self._blocks[-1].used + count > len(self._blocks[-1].host):
            # whole multiples of the alignment, for `used` to stay inside
            size = -(-max(count, _BLOCK_BYTES) // _ALIGNMENT) * _ALIGNMENT
            self._blocks.append(_Block.of(size, self._device))
        return self._blocks[-1]
