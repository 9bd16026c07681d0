"""The inputs of a captured prefill at fixed places on the device.

T positions packed over B sequences, P pages of the longest context, N embeddings that are given.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from worker.engine.fixed import FixedArrays
from worker.engine.packing import Packed, write_pages
from worker.engine.prefill_shapes import PrefillShape
from worker.engine.readings import draws_of
from worker.engine.sampler import MOST_SUPPRESSED, Draws
from worker.kernels.paged_attention import PagedLayout

__all__ = ["INJECTED", "PackedOnDevice", "PrefillRows"]

INJECTED = 16
"""So many coordinates and sizes, together, may be fed in a step."""

_NOWHERE = -1  # the slot of a row that is not kept


@dataclass(frozen=True, slots=True)
class PackedOnDevice:
    """Row t feeds token `ids_T[t]`, or the given embedding n where `rows_N[n]` is t; there is one row more than kept.

    That one takes what is given for nobody. Sequence b reads heads from `rows_B`; padding reads row 0 into the spare
    seat.
    """

    ids_T: Tensor
    rows_N: Tensor
    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    rows_B: Tensor
    seats_B: Tensor
    draws: Draws


class PrefillRows:
    """Room for the largest of `shapes`; `patches` embeddings are given for an image. `spare_seat` is nobody's."""

    def __init__(
        self, shapes: Several[PrefillShape], *, patches: int, pages: int, page_size: int, spare_seat: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self._patches = patches
        self._page_size = page_size
        self._spare_seat = spare_seat
        self.given = max(shape.images for shape in shapes) * patches + INJECTED
        self.sequences = max(shape.sequences for shape in shapes)
        most, sequences = max(shape.positions for shape in shapes), self.sequences
        self._arrays = FixedArrays(
            {
                "ids": ((most + 1,), torch.int64),
                "positions": ((most,), torch.int64),
                "slots": ((most,), torch.int64),
                "given": ((self.given,), torch.int64),
                "reads": ((2, sequences), torch.int64),  # rows and seats
                "draws": ((3, sequences), torch.float64),
                "suppressed": ((sequences, MOST_SUPPRESSED), torch.int32),
                "starts": ((sequences + 1,), torch.int32),
                "lengths": ((2, sequences), torch.int32),  # of contexts and prefixes
                "table": ((sequences, pages), torch.int32),
            },
            device,
        )

    def fill(self, shape: PrefillShape, packed: Packed | None) -> None:
        """Lay packed chunks out and start the copy; without any, all is padding."""
        host = self._arrays.on_host()
        # what is left of former steps is as good as zeros wherever nobody keeps or reads it
        host["slots"][: shape.positions] = _NOWHERE
        host["given"][: shape.images * self._patches + INJECTED] = shape.positions
        host["reads"][:, : shape.sequences] = [[0], [self._spare_seat]]
        host["draws"][0, : shape.sequences] = 0
        host["starts"][: shape.sequences + 1] = packed.starts[-1] if packed is not None else 0
        if packed is not None:
            self._lay(packed)
        self._arrays.send()

    def on_device(self, shape: PrefillShape) -> PackedOnDevice:
        """Return the places that a shape has its inputs at."""
        arrays, positions, sequences = self._arrays.on_device, shape.positions, shape.sequences
        temperatures_B, top_ps_B, uniforms_B = arrays["draws"][:, :sequences].unbind(0)
        rows_B, seats_B = arrays["reads"][:, :sequences].unbind(0)
        contexts_B, prefixes_B = arrays["lengths"][:, :sequences].unbind(0)
        return PackedOnDevice(
            ids_T=arrays["ids"][: positions + 1],
            rows_N=arrays["given"][: shape.images * self._patches + INJECTED],
            positions_T=arrays["positions"][:positions],
            slots_T=arrays["slots"][:positions],
            layout=PagedLayout(
                cu_seqlens_B1=arrays["starts"][: sequences + 1],
                context_lens_B=contexts_B,
                page_table_BP=arrays["table"][:sequences],
                prefix_lens_B=prefixes_B,
                cu_seqlens=(),
                context_lens=(),
                prefix_lens=(),
                page_size=self._page_size,
            ),
            rows_B=rows_B,
            seats_B=seats_B,
            draws=Draws(temperatures_B, top_ps_B, uniforms_B, arrays["suppressed"][:sequences]),
        )

    def _lay(self, packed: Packed) -> None:
        host, count, chunks = self._arrays.on_host(), len(packed.ids_T), packed.chunks
        host["ids"][:count] = packed.ids_T
        host["positions"][:count] = packed.positions_T
        host["slots"][:count] = packed.slots_T
        host["starts"][: len(chunks)] = packed.starts[:-1]
        host["lengths"][:, : len(chunks)] = [
            [chunk.end for chunk in chunks],
            [chunk.sequence.prefix_len for chunk in chunks],
        ]
        write_pages(chunks, self._page_size, host["table"])
        given = [np.arange(first, first + self._patches) for first in packed.images]
        given.append(np.array([row for row, _ in packed.coordinates + packed.sizes], dtype=np.int64))
        rows = np.concatenate(given)
        host["given"][: len(rows)] = rows
        readers = packed.readers
        host["reads"][:, : len(readers)] = [packed.lasts, [sequence.seat for sequence in readers]]
        host["draws"][:, : len(readers)], host["suppressed"][: len(readers)] = draws_of(readers)
