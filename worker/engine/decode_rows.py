"""The inputs of a decode step at fixed places on the device, so that a captured step finds them there.

B rows, P pages of the longest context.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from worker.engine.inputs import CoordinateInput, SizeInput, TokenInput
from worker.engine.readings import draws_of
from worker.engine.sampler import MOST_SUPPRESSED, Draws
from worker.engine.scheduler import Chunk
from worker.engine.sequence import Sequence
from worker.engine.skills import Fed
from worker.kernels.paged_attention import PagedLayout

__all__ = ["UNREAD", "DecodeRows", "RowsOnDevice"]

UNREAD = -1
"""The id of a row that is fed from its seat."""

_COPIES = 3  # one being filled, one being copied, and one for the step ahead
_LONGS = 5  # id, kind of input, seat, position, slot
_DOUBLES = 5  # two values, temperature, top_p, uniform


@dataclass(frozen=True, slots=True)
class RowsOnDevice:
    """Row b feeds token `ids_B`, or `values_2B`, or what is in its seat where the id is `UNREAD`.

    `fed_B` is the number of its kind in `Fed`. A padding row has the spare seat, slot -1 and context 0.
    """

    ids_B: Tensor
    fed_B: Tensor
    seats_B: Tensor
    positions_B: Tensor
    slots_B: Tensor
    values_2B: Tensor
    draws: Draws
    layout: PagedLayout


class _Block:
    """One stretch of bytes with the arrays of `capacity` rows in it, on the host or on the device."""

    def __init__(self, capacity: int, pages: int, device: torch.device, *, pinned: bool = False) -> None:
        counts = (_LONGS * capacity, _DOUBLES * capacity, capacity * (1 + MOST_SUPPRESSED + pages))
        sizes = (8 * counts[0], 8 * counts[1], 4 * counts[2])
        self.bytes = torch.zeros(sum(sizes), dtype=torch.uint8, device=device, pin_memory=pinned)
        longs, doubles, ints = self.bytes.split(sizes)  # type: ignore[no-untyped-call]
        self.longs = longs.view(torch.int64).view(_LONGS, capacity)
        self.doubles = doubles.view(torch.float64).view(_DOUBLES, capacity)
        parts = [capacity, MOST_SUPPRESSED * capacity, pages * capacity]
        contexts, suppressed, table = torch.split(ints.view(torch.int32), parts)
        self.contexts = contexts
        self.suppressed = suppressed.view(capacity, MOST_SUPPRESSED)
        self.table = table.view(capacity, pages)


class _OnHost:
    """A block as arrays, to be filled; on CUDA `sent` tells when it may be filled again."""

    def __init__(self, capacity: int, pages: int, *, pinned: bool) -> None:
        block = _Block(capacity, pages, torch.device("cpu"), pinned=pinned)
        self.bytes = block.bytes
        self.longs: npt.NDArray[np.int64] = block.longs.numpy()
        self.doubles: npt.NDArray[np.float64] = block.doubles.numpy()
        self.contexts: npt.NDArray[np.int32] = block.contexts.numpy()
        self.suppressed: npt.NDArray[np.int32] = block.suppressed.numpy()
        self.table: npt.NDArray[np.int32] = block.table.numpy()
        self.sent = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]


class DecodeRows:
    """`capacity` rows of up to `pages` pages, of which a step may use fewer: the others are padding.

    `spare_seat` is nobody's.
    """

    def __init__(
        self, capacity: int, *, max_context: int, page_size: int, spare_seat: int, device: torch.device
    ) -> None:
        self.pages = -(-max_context // page_size)
        self._page_size = page_size
        self._spare_seat = spare_seat
        self._ring = [_OnHost(capacity, self.pages, pinned=device.type == "cuda") for _ in range(_COPIES)]
        self._turn = 0
        self._device = _Block(capacity, self.pages, device)

    def fill(self, chunks: Several[Chunk]) -> None:
        """Lay decodes out and start the copy; waits only for a copy that was started `_COPIES` fills ago."""
        host = self._ring[self._turn]
        self._turn = (self._turn + 1) % _COPIES
        if host.sent is not None:
            host.sent.synchronize()
        self._lay(host, chunks)
        self._device.bytes.copy_(host.bytes, non_blocking=True)
        if host.sent is not None:
            host.sent.record()

    def on_device(self, rows: int, width: int) -> RowsOnDevice:
        """Return the first `rows` rows, their page tables as wide as `width` pages."""
        block, page_size = self._device, self._page_size
        ids_B, fed_B, seats_B, positions_B, slots_B = block.longs[:, :rows].unbind(0)
        temperatures_B, top_ps_B, uniforms_B = block.doubles[2:, :rows].unbind(0)
        starts = torch.arange(rows + 1, dtype=torch.int32, device=block.bytes.device)
        return RowsOnDevice(
            ids_B=ids_B,
            fed_B=fed_B,
            seats_B=seats_B,
            positions_B=positions_B,
            slots_B=slots_B,
            values_2B=block.doubles[:2, :rows],
            draws=Draws(temperatures_B, top_ps_B, uniforms_B, block.suppressed[:rows]),
            # a decode reads none of what the layout keeps on the host
            layout=PagedLayout(
                cu_seqlens_B1=starts,
                context_lens_B=block.contexts[:rows],
                page_table_BP=block.table[:rows, :width],
                prefix_lens_B=torch.zeros_like(block.contexts[:rows]),
                cu_seqlens=(),
                context_lens=(),
                prefix_lens=(),
                page_size=page_size,
            ),
        )

    def _lay(self, host: _OnHost, chunks: Several[Chunk]) -> None:
        count = len(chunks)
        sequences = [chunk.sequence for chunk in chunks]
        host.longs[:, count:] = [[0], [Fed.TOKEN.value], [self._spare_seat], [0], [-1]]
        host.contexts[count:] = 0
        host.doubles[2, count:] = 0
        host.contexts[:count] = [chunk.end for chunk in chunks]
        host.longs[2:4, :count] = [[s.seat for s in sequences], [chunk.start for chunk in chunks]]
        host.doubles[2:, :count], host.suppressed[:count] = draws_of(sequences)
        for row, (chunk, sequence) in enumerate(zip(chunks, sequences, strict=True)):
            pages, page, offset = sequence.pages, *divmod(chunk.start, self._page_size)
            host.table[row, : page + 1] = pages[: page + 1]
            host.longs[4, row] = pages[page] * self._page_size + offset
            host.longs[:2, row] = self._feed(sequence, row, host)

    def _feed(self, sequence: Sequence, row: int, host: _OnHost) -> tuple[int, int]:
        """Return the id and the kind of a row's input, having written its values."""
        if sequence.unread is not None:
            return UNREAD, sequence.unread.fed.value
        match sequence.inputs[-1]:
            case TokenInput(token):
                return token, Fed.TOKEN.value
            case CoordinateInput(value):
                host.doubles[0, row] = value
                return 0, Fed.COORDINATE.value
            case SizeInput(width, height):
                host.doubles[:2, row] = width, height
                return 0, Fed.SIZE.value
