"""Host values to the device, a whole batch in one copy."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from stoop_worker.engine.device.packed_bytes import PackedBytes, padded

__all__ = ["ToDevice", "Upload"]

ToDevice = Callable[[object, torch.dtype], Tensor]
"""Takes nested numbers or an array, and a dtype; returns a tensor on the device."""

_BLOCK_BYTES = 256 * 1024  # enough for nearly every batch


class _Block:
    """As many bytes on the host, pinned if the device is CUDA, as on the device."""

    def __init__(self, size: int, device: torch.device) -> None:
        # new for each batch: torch reuses pinned memory only after the copies from it are done
        self.host = PackedBytes(torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda"))
        self._device = PackedBytes(torch.empty(size, dtype=torch.uint8, device=device))

    def put(self, values: Tensor) -> Tensor:
        """Write to the host's side; return the view of the device's side that will receive the values."""
        shape = tuple(values.shape)
        self.host.take(shape, values.dtype).copy_(values)
        return self._device.take(shape, values.dtype)

    def send(self) -> None:
        """Start the copy."""
        self._device.copy_from(self.host)


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
            block.send()
        self._blocks.clear()

    def _room(self, count: int) -> _Block:
        if not self._blocks or not self._blocks[-1].host.has_room(count):
            self._blocks.append(_Block(padded(max(count, _BLOCK_BYTES)), self._device))
        return self._blocks[-1]
