"""One sequence run through any family's `forward`, in pieces, over a cache that is NaN wherever nothing was written."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from stoop_worker.engine.model import Model
from stoop_worker.engine.positions import INDEX, Positions
from stoop_worker.engine.tensors import FedRows, Given, KVView, LastHeads
from stoop_worker.kernels.paged_attention import PagedLayout

__all__ = ["ModelRun"]

_PAGE = 16


@dataclass
class ModelRun:
    """A sequence and its cache, whose pages are in reverse order in the pool."""

    model: Model
    pages: int = 32
    positions: Positions = INDEX
    length: int = 0
    pool: Tensor = field(init=False)

    def __post_init__(self) -> None:
        kv = self.model.spec.kv
        shape = (kv.layers, 2, self.pages, _PAGE, kv.heads, kv.head_dim)
        self.pool = torch.full(shape, torch.nan, dtype=self.model.dtype)

    @torch.inference_mode()
    def feed(self, ids: list[int], given: Given | None = None) -> Tensor:
        """Append ids, some of them replaced by the `given` embeddings; return hidden_TC."""
        indices = torch.arange(self.length, self.length + len(ids))
        positions = torch.from_numpy(self.positions.at(self.length, self.length + len(ids)))
        self.length += len(ids)
        x_TC = self.model.feed(FedRows(torch.tensor(ids)), LastHeads.of(1, 0, torch.device("cpu")))
        slots = (self.pages - 1 - indices // _PAGE) * _PAGE + indices % _PAGE
        kv = KVView(positions, slots, self._layout(len(ids)), self.pool, lambda: None)
        return self.model.forward(x_TC, kv, given, None)

    def _layout(self, rows: int) -> PagedLayout:
        def int32(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32)

        return PagedLayout(
            cu_seqlens_B1=int32([0, rows]),
            context_lens_B=int32([self.length]),
            page_table_BP=int32(list(range(self.pages))[::-1])[None],
            prefix_lens_B=int32([0]),
            cu_seqlens=(0, rows),
            context_lens=(self.length,),
            prefix_lens=(0,),
            page_size=_PAGE,
        )
