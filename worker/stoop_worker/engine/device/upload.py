"""Host values to the device, a whole batch in one copy."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["ToDevice", "Upload"]

ToDevice = Callable[[object, torch.dtype], Tensor]
"""Takes nested numbers or an array, and a dtype; returns a tensor on the device."""

_BLOCK_BYTES = 256 * 1024  # enough for nearly every batch
_ALIGNMENT = 16  # no dtype is wider


@dataclass(slots=True)
class _Block:
    """Bytes on the host, pinned if the device is CUDA, and as many on the device; the first `used` are taken."""

    host: Tensor
    device: Tensor
    used: int = 0

    @classmethod
    def of(cls, count: int, device: torch.device) -> "_Block":
        # new for each batch: torch reuses pinned memory only after the copies from it are done
        host = torch.empty(count, dtype=torch.uint8, pin_memory=device.type == "cuda")
        return cls(host, torch.empty(count, dtype=torch.uint8, device=device))

    def put(self, values: Tensor) -> Tensor:
        """Write to the host's side; return the view of the device's side that will receive the values."""
        start, end = self.used, self.used + values.nbytes
        self.host[start:end].view(values.dtype).view(values.shape).copy_(values)
        self.used = -(-end // _ALIGNMENT) * _ALIGNMENT
        return self.device[start:end].view(values.dtype).view(values.shape)


class Upload:
    """Returns tensors at once; `send` fills them. Nothing waits for the device.

    On the CPU the tensors are the values themselves, unless `packed` selects the copies used for other devices.
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
        """Start the copies; do not add values after that."""
        for block in self._blocks:
            block.device[: block.used].copy_(block.host[: block.used], non_blocking=True)
        self._blocks.clear()

    def _room(self, count: int) -> _Block:
        if not self._blocks or self._blocks[-1].used + count > len(self._blocks[-1].host):
            # whole multiples of the alignment, so that `used` stays inside
            size = -(-max(count, _BLOCK_BYTES) // _ALIGNMENT) * _ALIGNMENT
            self._blocks.append(_Block.of(size, self._device))
        return self._blocks[-1]
