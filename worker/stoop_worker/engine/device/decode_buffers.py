"""The inputs of a decode step at fixed addresses on the device, where a captured step reads them.

B rows, P pages of the longest context, W columns of values.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.engine.device.batch import RowLimits
from stoop_worker.engine.device.decode_rows import DecodeRows, LaidRows
from stoop_worker.engine.device.heads import SAMPLING_ROWS
from stoop_worker.engine.device.mask_table import MaskTable
from stoop_worker.engine.device.static_buffers import HostArrays, StaticBuffers
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.skill import MOST_SUPPRESSED
from stoop_worker.engine.spec import Spec
from stoop_worker.engine.tensors import FedRows, HeadReads, SamplingRows
from stoop_worker.kernels.paged_attention import PagedLayout, PlannedBatch

__all__ = ["DecodeBuffers", "DecodeKind", "StaticDecode"]


@dataclass(frozen=True, slots=True)
class DecodeKind:
    """The features that any row of a step needs: values besides tokens, fed or read, and limits on its choice.

    These are a top-k, the masks of a grammar, and penalties.
    """

    values: bool
    top_k: bool = False
    masked: bool = False
    penalised: bool = False


@dataclass(frozen=True, slots=True)
class StaticDecode:
    """The rows of a step. A padding row has the spare seat, slot -1 and context 0."""

    fed: FedRows
    positions_B: Tensor
    slots_B: Tensor
    layout: PagedLayout
    reads: HeadReads


class DecodeBuffers:
    """`capacity` rows of up to `pages` pages; a step may use fewer, and the others are padding.

    Sequences have the seats below `capacity`, and padding the next one.
    """

    def __init__(
        self,
        capacity: int,
        spec: Spec,
        limits: RowLimits,
        *,
        pages: int,
        page_size: int,
        device: torch.device,
    ) -> None:
        self.pages = pages
        self._capacity = capacity
        self._limits = limits
        self._device = device
        self._masks: MaskTable | None = None
        self._page_size = page_size
        self._buffers = StaticBuffers(
            {
                "ids": ((capacity,), torch.int64),
                "kinds": ((capacity,), torch.int64),
                "seats": ((capacity,), torch.int64),
                "positions": ((capacity,) if spec.axes == 1 else (capacity, spec.axes), torch.int64),
                "slots": ((capacity,), torch.int64),
                "values": ((capacity, spec.fed_values), torch.float64),
                "sampling": ((SAMPLING_ROWS, capacity), torch.float64),
                "contexts": ((capacity,), torch.int32),
                "suppressed": ((capacity, MOST_SUPPRESSED), torch.int32),
                "rules": ((capacity, spec.rule), torch.int64),
                "top_ks": ((capacity,), torch.int32),
                "table": ((capacity, self.pages), torch.int32),
            },
            device,
        )
        # a decode's rows have one position each, and no prefix
        self._starts_B1 = torch.arange(capacity + 1, dtype=torch.int32, device=device)
        self._prefixes_B = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._laid = [LaidRows(host, page_size=page_size, spare_seat=capacity) for host in self._buffers.ring]

    def fill(self, rows: DecodeRows, chunks: Several[Chunk]) -> HostArrays:
        """Lay out the decodes of these rows and start the copy; this waits only for an earlier copy.

        It returns the arrays as laid out on the host, which later calls fill again.
        """
        host = self._buffers.on_host()
        self._laid[self._buffers.upcoming].lay(rows, chunks)
        # the table comes last: nothing reads the pages of padding
        self._buffers.send(of_last=len(chunks) * self.pages)
        return host

    def on_device(
        self, rows: int, width: int, kind: DecodeKind, *, planned: PlannedBatch | None = None
    ) -> StaticDecode:
        """Return the first `rows` rows, with page tables `width` pages wide, and their attention if it is planned."""
        arrays = {name: array[:rows] for name, array in self._buffers.on_device.items()}
        contexts_B, seats_B = arrays["contexts"], arrays["seats"]
        return StaticDecode(
            fed=FedRows(
                ids_B=arrays["ids"],
                seats_B=seats_B,
                kinds_B=arrays["kinds"] if kind.values else None,
                values_BW=arrays["values"] if kind.values else None,
            ),
            positions_B=arrays["positions"],
            slots_B=arrays["slots"],
            # a decode does not read the layout's host arrays
            layout=PagedLayout(
                cu_seqlens_B1=self._starts_B1[: rows + 1],
                context_lens_B=contexts_B,
                page_table_BP=arrays["table"][:, :width],
                prefix_lens_B=self._prefixes_B[:rows],
                cu_seqlens=(),
                context_lens=(),
                prefix_lens=(),
                page_size=self._page_size,
                planned=planned,
            ),
            reads=HeadReads(seats_B, self._sampling(rows, kind), kind.values, arrays["rules"]),
        )

    def fill_masks(self, constraints: Several[Constraint], rows: Several[int]) -> None:
        """Give some rows their masks; the other rows have none."""
        self._mask_table().fill(constraints, rows)

    def _mask_table(self) -> MaskTable:
        """Return the table of masks; most workers never need it."""
        if self._masks is None:
            self._masks = MaskTable(self._capacity, self._limits, self._device)
        return self._masks

    def _sampling(self, rows: int, kind: DecodeKind) -> SamplingRows:
        arrays = self._buffers.on_device
        temperatures_B, top_ps_B, uniforms_B, presences_B, frequencies_B = arrays["sampling"][:, :rows].unbind(0)
        seats_B = arrays["seats"][:rows]
        return SamplingRows(
            temperatures_B,
            top_ps_B,
            uniforms_B,
            arrays["suppressed"][:rows],
            arrays["top_ks"][:rows] if kind.top_k else None,
            self._mask_table().on_device(rows) if kind.masked else None,
            self._limits.counts.rows(seats_B, presences_B, frequencies_B) if kind.penalised else None,
        )
