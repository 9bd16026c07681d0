"""The pages that hold the keys and values of a batch. B sequences, P pages of the longest one.

T query rows, H query heads, D head dim, M >= H D; a layer's pool is as in `reference`.
"""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

__all__ = ["PagedLayout", "PlannedBatch", "tiles"]


class PlannedBatch(Protocol):
    """A batch whose attention a library has planned on the host. `run` may be captured; later plans then change it."""

    def run(self, q_THD: Tensor, pool: Tensor, *, scale: float, out_TM: Tensor | None = None) -> Tensor:
        """Compute `reference.paged_attention` over one layer's pool."""


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """The sequences of a packed batch, and their pages.

    `cu_seqlens_B1` (B + 1,) int32: query rows of sequence b are [cu_seqlens[b], cu_seqlens[b + 1]).
    `context_lens_B` int32: positions in the cache, including those of this call. Row r of sequence b is at position
    context_lens[b] - its query rows + r. 0 marks a padding row of a decode: its output is zero.
    `page_table_BP` int32: the page of each run of `page_size` positions. Entries beyond the context are never read.
    Work grows with P, so the table should be no wider than the longest context needs.
    `prefix_lens_B` int32: the first prefix_lens[b] positions attend to each other in both directions; 0 is plain
    causal. If a query lies in the prefix, all the prefix's positions must be in the cache or in this call.
    `cu_seqlens`, `context_lens` and `prefix_lens` are the same numbers on the host, so that the reference need not wait
    for the device. The kernels read only the tensors, so a captured launch does not need them. In a captured prefill a
    sequence may have no rows, and rows may follow the last sequence's, whose output is not written; otherwise every
    sequence has at least one row. A batch with as many rows as sequences is a decode. `planned` computes attention in
    place of our kernels, which need no plan.
    """

    cu_seqlens_B1: Tensor
    context_lens_B: Tensor
    page_table_BP: Tensor
    prefix_lens_B: Tensor
    cu_seqlens: tuple[int, ...]
    context_lens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    page_size: int
    planned: PlannedBatch | None = None


def tiles(rows: int, sequences: int, size: int) -> int:
    """Return the largest number of tiles of `size` rows that `sequences` can need, however they share the `rows`."""
    # each sequence's last tile may hold a single row
    return min(rows, (rows + (size - 1) * sequences) // size)
