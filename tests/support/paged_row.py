"""One row of a decode at any context: its pages in a random order, and tables of rotations."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import Places, rotation_table

__all__ = ["PagedRow"]


@dataclass(frozen=True)
class PagedRow:
    """`pages` pages of `page` positions, on the CPU; `table_SF2` rotates `rotated` channels."""

    table_BP: Tensor
    table_SF2: Tensor
    page: int

    @classmethod
    def of(cls, pages: int, page: int, rotated: int, theta: float = 1e4) -> "PagedRow":
        """Draw the order of the pages."""
        table_SF2 = rotation_table(pages * page, rotated, theta, torch.device("cpu"))
        return cls(torch.randperm(pages).int()[None], table_SF2, page)

    def places(self, context: int, *, stores: bool = True) -> Places:
        """Return the place of the last position, whose key and value are stored unless `stores` is false."""
        position = max(context - 1, 0)
        slot = int(self.table_BP[0, position // self.page]) * self.page + position % self.page if stores else -1
        return Places(torch.tensor([position]), self.table_SF2, torch.tensor([slot]))

    def layout(self, context: int) -> PagedLayout:
        """Return the layout of a decode."""
        count = torch.tensor([context], dtype=torch.int32)
        return PagedLayout(count, count, self.table_BP, count, (), (), (), self.page)

    def cached(self, pool: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of one layer's pool (2, pages, page, heads, dim), by position, in float32."""
        slots = (self.table_BP[0].long()[:, None] * self.page + torch.arange(self.page)).flatten()[:context]
        keys, values = (kind.flatten(0, 1)[slots].float() for kind in pool)
        return keys, values
