"""One sequence run through the text model with a paged cache, as plainly as possible.

T tokens of this call, C model dim, H heads, D head dim.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from deploy.demo_model import dense_text as text
from stoop_worker.kernels.paged_attention import PagedLayout, paged_attention, write_kv
from stoop_worker.models.moondream.model import Moondream

__all__ = ["OneSequence"]


@dataclass
class OneSequence:
    """A sequence and its cache: unwritten places are NaN, and its pages are in reverse order in the pool."""

    model: Moondream
    prefix_len: int
    page_size: int = 16
    length: int = 0
    pools: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.model.config.text
        shape = (2, self.pages, self.page_size, config.n_heads, config.head_dim)
        for _ in range(config.n_layers):
            self.pools.append(torch.full(shape, torch.nan, dtype=self.model.dtype, device=self.model.device))

    @property
    def pages(self) -> int:
        """Pages of the longest sequence the model takes."""
        return -(-self.model.config.text.max_context // self.page_size)

    def step(self, x_TC: Tensor) -> Tensor:
        """Append embeddings; returns hidden_TC."""
        config, device = self.model.config.text, self.model.device
        positions = torch.arange(self.length, self.length + len(x_TC), device=device)
        self.length += len(x_TC)
        layout = self._layout(len(x_TC))
        slots = self.slots(positions)

        def attend(layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
            write_kv(k_THD, v_THD, self.pools[layer], slots)
            return paged_attention(q_THD, self.pools[layer], layout)

        with torch.inference_mode():
            return text.forward(x_TC, positions, self.model.weights.text, config, attend)

    def tokens(self, ids: list[int]) -> Tensor:
        """Append tokens; returns hidden_TC."""
        with torch.inference_mode():
            return self.step(text.embed(torch.tensor(ids, device=self.model.device), self.model.weights.text))

    def logits(self, hidden_TC: Tensor) -> Tensor:
        """Return the logits (V,) after the last row."""
        with torch.inference_mode():
            return text.logits(hidden_TC[-1:], self.model.weights.text)[0]

    def cached_keys(self, layer: int, position: int) -> Tensor:
        """Return the keys (H, D) of one position."""
        slot = self.slots(torch.tensor([position], device=self.model.device))
        return self.pools[layer][0].flatten(0, 1)[slot][0]

    def slots(self, positions_T: Tensor) -> Tensor:
        """Return where the positions are kept."""
        pages_T = self.pages - 1 - positions_T // self.page_size
        return pages_T * self.page_size + positions_T % self.page_size

    def _layout(self, rows: int) -> PagedLayout:
        def int32(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=self.model.device)

        return PagedLayout(
            cu_seqlens_B1=int32([0, rows]),
            context_lens_B=int32([self.length]),
            page_table_BP=int32(list(range(self.pages))[::-1])[None],
            prefix_lens_B=int32([self.prefix_len]),
            cu_seqlens=(0, rows),
            context_lens=(self.length,),
            prefix_lens=(self.prefix_len,),
            page_size=self.page_size,
        )
