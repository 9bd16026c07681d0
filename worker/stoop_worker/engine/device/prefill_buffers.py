"""The inputs of a captured prefill at fixed addresses on the device.

T positions packed over B sequences, P pages of the longest context, N rows that are given.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.engine.device.heads import SAMPLING_ROWS, rules_of, sampling_of, suppressed_of
from stoop_worker.engine.device.prefill_shapes import PrefillShape
from stoop_worker.engine.device.static_buffers import StaticBuffers
from stoop_worker.engine.device.varlen import Varlen
from stoop_worker.engine.skill import MOST_SUPPRESSED
from stoop_worker.engine.spec import Spec
from stoop_worker.engine.tensors import FedRows, HeadReads, SamplingRows
from stoop_worker.kernels.paged_attention import PagedLayout, PlannedBatch

__all__ = ["MOST_VALUES", "PrefillBuffers", "StaticPrefill"]

MOST_VALUES = 16
"""The most values, such as coordinates, in a captured prefill; a step with more runs uncaptured."""

_NOWHERE = -1  # the slot of a row that is not kept, and the source of a copy that is not made


@dataclass(frozen=True, slots=True)
class StaticPrefill:
    """Row t feeds its token, or the given embedding n where `rows_N[n]` is t; there is one more row than slots.

    That row takes the padding of `rows_N`. Pages `copies_2B[0]` are copied to `copies_2B[1]` first. Sequence b reads
    heads from `rows_B`; padding reads row 0 into the spare seat.
    """

    fed: FedRows
    rows_N: Tensor
    positions_T: Tensor
    slots_T: Tensor
    layout: PagedLayout
    copies_2B: Tensor
    rows_B: Tensor
    reads: HeadReads


class PrefillBuffers:
    """Room for the largest of `shapes`. No sequence has the seat `spare_seat`."""

    def __init__(
        self,
        shapes: Several[PrefillShape],
        spec: Spec,
        *,
        pages: int,
        page_size: int,
        spare_seat: int,
        device: torch.device,
    ) -> None:
        self._values = spec.values > 0
        self._joined = spec.joins_decodes > 0
        self._rule = spec.rule
        self._page_size = page_size
        self._spare_seat = spare_seat
        self.given = max(shape.given for shape in shapes) + MOST_VALUES
        self.sequences = max(shape.sequences for shape in shapes)
        most, sequences = max(shape.positions for shape in shapes), self.sequences
        self._buffers = StaticBuffers(
            {
                "ids": ((most + 1,), torch.int64),
                "ids_seats": ((most + 1 if spec.joins_decodes else 0,), torch.int64),
                "positions": ((most,) if spec.axes == 1 else (most, spec.axes), torch.int64),
                "slots": ((most,), torch.int64),
                "given": ((self.given,), torch.int64),
                "rows": ((sequences,), torch.int64),
                "seats": ((sequences,), torch.int64),
                "sampling": ((SAMPLING_ROWS, sequences), torch.float64),
                "suppressed": ((sequences, MOST_SUPPRESSED), torch.int32),
                "rules": ((sequences, spec.rule), torch.int64),
                "copies": ((2, sequences), torch.int32),  # of pages, from and to
                "starts": ((sequences + 1,), torch.int32),
                "contexts": ((sequences,), torch.int32),
                "two_way": ((sequences,), torch.int32),
                "table": ((sequences, pages), torch.int32),
            },
            device,
        )

    def fill(self, shape: PrefillShape, varlen: Varlen | None, copies: Several[tuple[int, int]] = ()) -> None:
        """Lay chunks out, with at most one copy of a page for each, and send them; without any, all is padding."""
        host = self._buffers.on_host()
        # the rest may keep the content of earlier steps, because nothing keeps or reads it
        host["slots"][: shape.positions] = _NOWHERE
        host["given"][: shape.given + MOST_VALUES] = shape.positions
        host["rows"][: shape.sequences] = 0
        host["seats"][: shape.sequences] = self._spare_seat
        host["sampling"][0, : shape.sequences] = 0
        host["starts"][: shape.sequences + 1] = varlen.rows if varlen is not None else 0
        host["copies"][0, : shape.sequences] = _NOWHERE
        if copies:
            host["copies"][:, : len(copies)] = list(zip(*copies, strict=True))
        if varlen is not None:
            self._lay(varlen)
        self._buffers.send()

    def on_device(self, shape: PrefillShape, *, planned: PlannedBatch | None = None) -> StaticPrefill:
        """Return the inputs of a shape, at their addresses, and their attention if it is planned."""
        arrays, positions, sequences = self._buffers.on_device, shape.positions, shape.sequences
        temperatures_B, top_ps_B, uniforms_B = arrays["sampling"][:3, :sequences].unbind(0)
        return StaticPrefill(
            fed=FedRows(arrays["ids"][: positions + 1], arrays["ids_seats"][: positions + 1] if self._joined else None),
            rows_N=arrays["given"][: shape.given + MOST_VALUES],
            positions_T=arrays["positions"][:positions],
            slots_T=arrays["slots"][:positions],
            layout=PagedLayout(
                cu_seqlens_B1=arrays["starts"][: sequences + 1],
                context_lens_B=arrays["contexts"][:sequences],
                page_table_BP=arrays["table"][:sequences],
                prefix_lens_B=arrays["two_way"][:sequences],
                cu_seqlens=(),
                context_lens=(),
                prefix_lens=(),
                page_size=self._page_size,
                planned=planned,
            ),
            copies_2B=arrays["copies"][:, :sequences],
            rows_B=arrays["rows"][:sequences],
            reads=HeadReads(
                seats_R=arrays["seats"][:sequences],
                sampling=SamplingRows(temperatures_B, top_ps_B, uniforms_B, arrays["suppressed"][:sequences]),
                values=self._values,
                rules_RK=arrays["rules"][:sequences],
            ),
        )

    def _lay(self, varlen: Varlen) -> None:
        host, count, chunks = self._buffers.on_host(), varlen.rows, varlen.chunks
        host["ids"][:count] = varlen.ids_T
        if self._joined:
            host["ids_seats"][:count] = varlen.seats_T
        host["positions"][:count] = varlen.positions_T
        host["slots"][:count] = varlen.slots_T
        host["starts"][: len(chunks)] = varlen.starts[:-1]
        host["contexts"][: len(chunks)] = [chunk.end for chunk in chunks]
        host["two_way"][: len(chunks)] = [chunk.sequence.two_way for chunk in chunks]
        host["table"][: len(chunks), : varlen.table_BP.shape[1]] = varlen.table_BP
        rows = varlen.given_rows
        host["given"][: len(rows)] = rows
        readers, sampling = len(varlen.readers), sampling_of(varlen.readers)
        host["rows"][:readers] = varlen.lasts
        host["seats"][:readers] = [sequence.seat for sequence in varlen.readers]
        host["sampling"][:, :readers] = sampling.numbers
        host["suppressed"][:readers] = suppressed_of(varlen.readers)
        if self._rule:
            host["rules"][:readers] = rules_of(varlen.readers, self._rule)
