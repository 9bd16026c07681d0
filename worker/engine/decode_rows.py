"""The inputs of a decode step at fixed places on the device, so that a captured step finds them there.

B rows, P pages of the longest context.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.engine.fixed import FixedArrays, HostArrays
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
        self._arrays = FixedArrays(
            {
                "longs": ((_LONGS, capacity), torch.int64),
                "doubles": ((_DOUBLES, capacity), torch.float64),
                "contexts": ((capacity,), torch.int32),
                "suppressed": ((capacity, MOST_SUPPRESSED), torch.int32),
                "table": ((capacity, self.pages), torch.int32),
            },
            device,
        )

    def fill(self, chunks: Several[Chunk]) -> None:
        """Lay decodes out and start the copy; see `FixedArrays` for what that waits for."""
        self._lay(self._arrays.on_host(), chunks)
        self._arrays.send()

    def on_device(self, rows: int, width: int) -> RowsOnDevice:
        """Return the first `rows` rows, their page tables as wide as `width` pages."""
        arrays = self._arrays.on_device
        ids_B, fed_B, seats_B, positions_B, slots_B = arrays["longs"][:, :rows].unbind(0)
        temperatures_B, top_ps_B, uniforms_B = arrays["doubles"][2:, :rows].unbind(0)
        contexts_B = arrays["contexts"][:rows]
        return RowsOnDevice(
            ids_B=ids_B,
            fed_B=fed_B,
            seats_B=seats_B,
            positions_B=positions_B,
            slots_B=slots_B,
            values_2B=arrays["doubles"][:2, :rows],
            draws=Draws(temperatures_B, top_ps_B, uniforms_B, arrays["suppressed"][:rows]),
            # a decode reads none of what the layout keeps on the host
            layout=PagedLayout(
                cu_seqlens_B1=torch.arange(rows + 1, dtype=torch.int32, device=contexts_B.device),
                context_lens_B=contexts_B,
                page_table_BP=arrays["table"][:rows, :width],
                prefix_lens_B=torch.zeros_like(contexts_B),
                cu_seqlens=(),
                context_lens=(),
                prefix_lens=(),
                page_size=self._page_size,
            ),
        )

    def _lay(self, host: HostArrays, chunks: Several[Chunk]) -> None:
        count = len(chunks)
        sequences = [chunk.sequence for chunk in chunks]
        host["longs"][:, count:] = [[0], [Fed.TOKEN.value], [self._spare_seat], [0], [-1]]
        host["contexts"][count:] = 0
        host["doubles"][2, count:] = 0
        host["contexts"][:count] = [chunk.end for chunk in chunks]
        host["longs"][2:4, :count] = [[s.seat for s in sequences], [chunk.start for chunk in chunks]]
        host["doubles"][2:, :count], host["suppressed"][:count] = draws_of(sequences)
        for row, (chunk, sequence) in enumerate(zip(chunks, sequences, strict=True)):
            pages, page, offset = sequence.pages, *divmod(chunk.start, self._page_size)
            host["table"][row, : page + 1] = pages[: page + 1]
            host["longs"][4, row] = pages[page] * self._page_size + offset
            host["longs"][:2, row] = self._feed(sequence, row, host)

    def _feed(self, sequence: Sequence, row: int, host: HostArrays) -> tuple[int, int]:
        """Return the id and the kind of a row's input, having written its values."""
        if sequence.unread is not None:
            return UNREAD, sequence.unread.fed.value
        match sequence.inputs[-1]:
            case TokenInput(token):
                return token, Fed.TOKEN.value
            case CoordinateInput(value):
                host["doubles"][0, row] = value
                return 0, Fed.COORDINATE.value
            case SizeInput(width, height):
                host["doubles"][:2, row] = width, height
                return 0, Fed.SIZE.value
