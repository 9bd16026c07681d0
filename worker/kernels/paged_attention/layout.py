"""Where the sequences of a batch keep their keys and values. B sequences, P pages of the longest one."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["PagedLayout", "tiles"]


@dataclass(frozen=True, slots=True)
class PagedLayout:
    """The sequences of a packed batch, and their pages.

    `cu_seqlens_B1` (B + 1,) int32: query rows of sequence b are [cu_seqlens[b], cu_seqlens[b + 1]).
    `context_lens_B` int32: positions in the cache, those of this call included. Row r of sequence b is at position
    context_lens[b] - its query rows + r. 0 marks a padding row of a decode: its output is zero.
    `page_table_BP` int32: page of each `page_size` positions; entries beyond the context are not read, and may be
    anything. Work grows with P: pass no wider a table than the longest context needs.
    `prefix_lens_B` int32: so many first positions attend to each other in both directions; 0 is plain causal. The
    positions of a prefix must all be in the cache, or in this call, when one of them is a query.
    `cu_seqlens`, `context_lens` and `prefix_lens` are the same numbers on the host, so that the reference does not have
    to wait for the device to tell them. The kernels read the tensors alone, so what is captured goes without. In a
    captured prefill sequences may have no rows, and there may be rows behind the last sequence's, whose output is not
    written; else every sequence has one at least. As many rows as sequences are a decode.
    """

    cu_seqlens_B1: Tensor
    context_lens_B: Tensor
    page_table_BP: Tensor
    prefix_lens_B: Tensor
    cu_seqlens: tuple[int, ...]
    context_lens: tuple[int, ...]
    prefix_lens: tuple[int, ...]
    page_size: int


def tiles(rows: int, sequences: int, size: int) -> int:
    """Return how many tiles of `size` rows so many sequences have at most, whichever of the rows are theirs."""
    # each of them may fill its last tile with one row
    return min(rows, (rows + (size - 1) * sequences) // size)
