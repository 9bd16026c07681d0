"""Has FlashInfer plan the attention of batches before they run. B sequences, P pages of the longest one."""

from collections.abc import Sequence as Several

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.device.varlen import Varlen
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.paged_attention import PlannedBatch
from stoop_worker.kernels.paged_attention.flashinfer import FlashInfer, PageLists, PlannedDecode, PlannedPrefill

__all__ = ["PlannedAttention"]

_Ints = npt.NDArray[np.int32]


class PlannedAttention:
    """Plans batches of up to `sequences` sequences of up to `pages` pages each.

    Every captured decode and prefill has a plan of its own. A plan is for the next replay, so it is made directly
    before that. Batches that attend in both directions have no plan, and our kernels compute them.
    """

    def __init__(self, library: FlashInfer, *, sequences: int, pages: int) -> None:
        self._library = library
        self._page_size = library.sizes.page_size
        self._lists = StaticBuffers(
            {
                "starts": ((sequences + 1,), torch.int32),
                "lasts": ((sequences,), torch.int32),
                "pages": ((sequences * pages,), torch.int32),
            },
            library.device,
        )
        self._decodes: dict[int, PlannedDecode] = {}
        self._prefills: dict[PrefillShape, PlannedPrefill] = {}
        self._uncaptured: PlannedPrefill | None = None

    def decode(self, rows: int) -> PlannedBatch:
        """Return the attention of a decode of `rows` rows, planned for padding alone, to be captured."""
        if rows not in self._decodes:
            lists = self._lists.on_device
            on_device = PageLists(lists["starts"][: rows + 1], lists["pages"], lists["lasts"][:rows])
            try:
                self._decodes[rows] = self._library.decode(on_device)
            except RuntimeError as error:
                raise _not_compiled(error) from error
        # again for each capture: others have used the memory of the plan meanwhile
        self.plan_decode(np.zeros(rows, dtype=np.int32), np.zeros((rows, 1), dtype=np.int32))
        return self._decodes[rows]

    def plan_decode(self, contexts_B: _Ints, table_BP: _Ints) -> None:
        """Plan the next decode of B rows. A row with context 0 is padding, and reads one position of any page."""
        self._decodes[len(contexts_B)].plan(self._send(np.maximum(contexts_B, 1), table_BP))

    def prefill(self, shape: PrefillShape) -> PlannedBatch | None:
        """Return the attention of a captured prefill, planned for all its rows; None if our kernels compute it."""
        if shape.given:
            return None  # where media attend in both directions, a prefill has some
        if shape not in self._prefills:
            pages_N = self._lists.on_device["pages"]
            made = self._library.captured_prefill(shape.positions, shape.sequences, pages_N)
            try:
                made.plan_rows()
            except RuntimeError as error:
                raise _not_compiled(error) from error
            self._prefills[shape] = made
        return self._prefills[shape]

    def plan_prefill(self, shape: PrefillShape, varlen: Varlen) -> None:
        """Plan the next prefill of a captured shape, if `prefill` returned one."""
        if shape in self._prefills:
            assert not _looks_ahead(varlen.chunks), "media that attend in both directions are given"
            self._plan(self._prefills[shape], varlen, shape.sequences)

    def plan(self, varlen: Varlen) -> PlannedBatch | None:
        """Return the attention of a prefill that is not captured; None if our kernels compute it."""
        if _looks_ahead(varlen.chunks):
            return None
        if self._uncaptured is None:
            self._uncaptured = self._library.prefill()
        self._plan(self._uncaptured, varlen, len(varlen.chunks))
        return self._uncaptured

    def _plan(self, planned: PlannedPrefill, varlen: Varlen, sequences: int) -> None:
        chunks = varlen.chunks
        contexts_B = np.array([chunk.end for chunk in chunks], dtype=np.int32)
        row_starts = torch.full((sequences + 1,), varlen.rows, dtype=torch.int32)
        row_starts[: len(chunks)] = torch.tensor(varlen.starts[:-1], dtype=torch.int32)
        planned.plan(row_starts, _with_empty(self._send(contexts_B, varlen.table_BP), sequences))

    def _send(self, contexts_B: _Ints, table_BP: _Ints) -> PageLists:
        """Start the copy of the page lists; return them, the pages on the device and the others on the host."""
        host, size = self._lists.on_host(), self._page_size
        count, counts_B = len(contexts_B), -(-contexts_B // size)
        width = int(counts_B.max())
        pages_N = table_BP[:, :width][np.arange(width) < counts_B[:, None]]
        np.cumsum(counts_B, out=host["starts"][1 : count + 1])
        host["lasts"][:count] = (contexts_B - 1) % size + 1
        host["pages"][: len(pages_N)] = pages_N
        self._lists.send(of_last=len(pages_N))
        # copies: the library may send them too, and these are not filled again before they have arrived
        starts_B1, lasts_B = (
            torch.from_numpy(host[name][:length].copy()) for name, length in (("starts", count + 1), ("lasts", count))
        )
        return PageLists(starts_B1, self._lists.on_device["pages"][: len(pages_N)], lasts_B)


def _with_empty(lists: PageLists, sequences: int) -> PageLists:
    """Add sequences without pages at the end."""
    more = sequences - len(lists.lasts_B)
    return PageLists(
        _extended(lists.starts_B1, more, int(lists.starts_B1[-1])), lists.pages_N, _extended(lists.lasts_B, more, 0)
    )


def _extended(values_B: Tensor, more: int, value: int) -> Tensor:
    return torch.cat((values_B, values_B.new_full((more,), value)))


def _looks_ahead(chunks: Several[Chunk]) -> bool:
    """Return whether a row lies among positions that attend to each other in both directions."""
    return any(chunk.start < chunk.sequence.two_way and chunk.sequence.two_way > 1 for chunk in chunks)


def _not_compiled(error: RuntimeError) -> ConfigError:
    return ConfigError(f"FlashInfer could not be prepared: use --attention triton, or fix this: {error}")
