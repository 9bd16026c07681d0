"""One position of each running sequence: fed, computed and read; on a GPU as one graph. B rows, V head values.

A step with masks is cut in two before its heads are read: the masks depend on the last step's tokens, which arrive
while the device computes the first part.
"""

from collections.abc import Callable, Hashable
from collections.abc import Sequence as Several

import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig
from stoop_worker.engine.device.batch import RowLimits
from stoop_worker.engine.device.decode_buffers import DecodeBuffers, DecodeKind, StaticDecode
from stoop_worker.engine.device.decode_rows import DecodeRows
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import TOKEN, TokenInput
from stoop_worker.engine.model import Model
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.skill import Head
from stoop_worker.engine.tensors import LastHeads
from stoop_worker.kernels.profiling import named_part

__all__ = ["Decoder", "LateRead", "bucket_sizes", "takes_values"]

LateRead = Callable[[], Tensor]
"""Reads the heads of a step that has started; call it once the skills have taken all tokens of earlier steps."""


class Decoder:
    """Runs decodes. With `graphs`, in captured steps for some numbers of rows, with and without the model's own heads.

    A step with limits on the choice, such as a top_k, is captured when the first such request comes.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        cache: KVCache,
        last: LastHeads,
        limits: RowLimits,
        graphs: Graphs | None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._last = last
        self._limits = limits
        self._graphs = graphs
        self._laid = DecodeRows()  # of the last step
        self._sizes = bucket_sizes(config.max_batch)
        self._has_values = model.spec.values > 0 or model.spec.fed_values > 0
        # between the two parts of a captured step with masks; outside the graphs' shared memory
        self._hidden_BC = torch.zeros(
            config.max_batch if graphs is not None else 0, model.spec.dim, dtype=model.dtype, device=model.device
        )
        self._buffers = DecodeBuffers(
            config.max_batch,
            model.spec,
            limits,
            pages=cache.longest_table,
            page_size=config.page_size,
            device=model.device,
        )

    def warm_up(self) -> None:
        """Capture the usual steps."""
        for size in reversed(self._sizes):
            for values in (True, False) if self._model.spec.values else (False,):
                self._captured(size, DecodeKind(values))

    def run(self, chunks: Several[Chunk]) -> Tensor | LateRead:
        """Compute one position per sequence; return the head values, (B, 1 + V), or (B, 1) if all read only tokens.

        If a row has a mask, the heads are not read yet: see `LateRead`.
        """
        sequences = [chunk.sequence for chunk in chunks]
        if not self._laid.are_of(sequences):
            self._laid = DecodeRows(sequences)
        constraints = [sequence.skill.constraint for sequence in sequences]
        kind = DecodeKind(
            values=self._has_values and any(map(takes_values, sequences)),
            top_k=self._laid.has_top_k,
            masked=any(constraints),
            penalised=self._limits.counts.renew(self._laid.penalised(sequences), prefilled=False),
        )
        read = self._start(chunks, kind) if self._graphs is None else self._replay(self._graphs, chunks, kind)
        return read if isinstance(read, Tensor) else self._after_masks(constraints, read)

    def _start(self, chunks: Several[Chunk], kind: DecodeKind) -> Tensor | LateRead:
        """Compute the step without a graph; if its heads need masks, return the function that reads them."""
        self._buffers.fill(self._laid, chunks)
        width = max(-(-chunk.end // self._cache.page_size) for chunk in chunks)
        rows = self._buffers.on_device(len(chunks), width, kind)
        if not kind.masked:
            return self._step(rows)
        hidden_BC = self._compute(rows)
        return lambda: self._read(hidden_BC, rows)

    def _replay(self, graphs: Graphs, chunks: Several[Chunk], kind: DecodeKind) -> Tensor | LateRead:
        count = len(chunks)
        size = next(size for size in self._sizes if size >= count)
        # first of all, because a capture fills the buffers with padding
        start, key = self._captured_start(size, kind) if kind.masked else None, self._captured(size, kind)
        host = self._buffers.fill(self._laid, chunks)
        if self._cache.decodes is not None:
            self._cache.decodes.plan_decode(host["contexts"][:size], host["table"][:size])
        with named_part("stoop.decode"):
            if start is None:
                return graphs.replay(key)[:count]
            graphs.replay(start)
        return lambda: graphs.replay(key)[:count]

    def _after_masks(self, constraints: Several[Constraint | None], read: LateRead) -> LateRead:
        rows = [row for row, constraint in enumerate(constraints) if constraint is not None]

        def late() -> Tensor:
            self._buffers.fill_masks([each for each in constraints if each is not None], rows)
            with named_part("stoop.heads"):
                return read()

        return late

    def _captured(self, size: int, kind: DecodeKind) -> Hashable:
        """Capture a step, or the second part of one with masks."""
        key = "decode", size, kind
        if self._graphs is not None and key not in self._graphs:
            self._buffers.fill(DecodeRows(), ())  # the capture runs on padding only
            if kind.masked:
                self._buffers.fill_masks((), ())
            rows = self._rows(size, kind)
            hidden_BC = self._hidden_BC[:size]
            self._graphs.capture(
                key, (lambda: self._read(hidden_BC, rows)) if kind.masked else (lambda: self._step(rows))
            )
        return key

    def _captured_start(self, size: int, kind: DecodeKind) -> Hashable:
        """Capture the first part of a step, which ends with the hidden states."""
        key = "decode to hidden", size, kind.values
        if self._graphs is not None and key not in self._graphs:
            self._buffers.fill(DecodeRows(), ())
            rows = self._rows(size, DecodeKind(kind.values))
            self._graphs.capture(key, lambda: self._hidden_BC[:size].copy_(self._compute(rows)))
        return key

    def _rows(self, size: int, kind: DecodeKind) -> StaticDecode:
        """Return the rows of a step to be captured."""
        planned = self._cache.decodes.decode(size) if self._cache.decodes is not None else None
        return self._buffers.on_device(size, self._buffers.pages, kind, planned=planned)

    def _step(self, rows: StaticDecode) -> Tensor:
        return self._read(self._compute(rows), rows)

    def _compute(self, rows: StaticDecode) -> Tensor:
        x_BC = self._model.feed(rows.fed, self._last)
        return self._model.step(x_BC, self._cache.at(rows.positions_B, rows.slots_B, rows.layout))

    def _read(self, hidden_BC: Tensor, rows: StaticDecode) -> Tensor:
        return self._model.read(hidden_BC, rows.reads, self._last)


def bucket_sizes(most: int) -> list[int]:
    """Return the numbers of rows that are captured: in fine steps where one more row costs most, and `most` itself."""
    return [size for size in (1, 2, 4, *range(8, 64, 8), *range(64, most, 32)) if size < most] + [most]


def takes_values(sequence: Sequence) -> bool:
    """Return whether a decode feeds or reads more than tokens."""
    if sequence.heads is not Head.TOKEN:
        return True
    if sequence.pending_input is not None:
        return sequence.pending_input.kind != TOKEN
    return not isinstance(sequence.inputs[-1], TokenInput)
