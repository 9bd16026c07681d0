"""The KV memory on the device. T tokens packed over sequences."""

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch
from torch import Tensor

from stoop_worker.engine.config import KVMemory
from stoop_worker.engine.device.planned_attention import PlannedAttention
from stoop_worker.engine.device.upload import Upload
from stoop_worker.engine.spec import KVSpec
from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.copy_pages import copy_pages
from stoop_worker.kernels.paged_attention import PagedLayout

__all__ = ["KVCache"]


class KVCache:
    """The pages of keys and values: (layers, 2, pages, page size, key heads, head dim).

    The model calls `on_progress` before each layer that uses it. `longest_table` is the pages of the longest sequence.
    `prefills` and `decodes` plan the attention over it; they are None where our kernels compute it.
    """

    def __init__(
        self,
        spec: KVSpec,
        memory: KVMemory,
        *,
        page_size: int,
        device: torch.device,
        on_progress: Callable[[], None],
    ) -> None:
        self.page_size = page_size
        self.longest_table = -(-memory.max_context // page_size)
        self.prefills: PlannedAttention | None = None
        self.decodes: PlannedAttention | None = None
        self._on_progress = on_progress
        shape = (spec.layers, 2, memory.pages, page_size, spec.heads, spec.head_dim)
        self._pages = torch.zeros(shape, dtype=memory.dtype, device=device)

    def at(self, positions_T: Tensor, slots_T: Tensor, layout: PagedLayout) -> KVView:
        """Return the cache as a batch sees it."""
        return KVView(positions_T, slots_T, layout, self._pages, self._on_progress)

    def copy(self, copies: Several[tuple[int, int]]) -> None:
        """Copy whole pages, (from, to), in all layers at once."""
        upload = Upload(self._pages.device)
        sources_B, targets_B = upload.to_device(list(zip(*copies, strict=True)), torch.int64).unbind(0)
        upload.send()
        self.copy_on_device(sources_B, targets_B)

    def copy_on_device(self, sources_B: Tensor, targets_B: Tensor) -> None:
        """Copy pages whose numbers are already on the device; a copy from page -1 does nothing."""
        copy_pages(self._pages, sources_B, targets_B)
