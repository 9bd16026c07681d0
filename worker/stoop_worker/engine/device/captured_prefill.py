"""The usual prefills, each as one graph: embeddings placed, keys and values kept, heads read.

T positions packed over B sequences, C model dim, N rows whose embeddings are given, V columns of head values.
"""

from collections.abc import Sequence as Several

import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.device.heads import is_plain
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.device.prefill_buffers import MOST_VALUES, PrefillBuffers, StaticPrefill
from stoop_worker.engine.device.prefill_shapes import PrefillShape, prefill_shapes
from stoop_worker.engine.device.varlen import Varlen
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import Model
from stoop_worker.engine.tensors import FedRows, Given, LastHeads

__all__ = ["CapturedPrefill"]


class CapturedPrefill:
    """Prefills at fixed addresses on the device, padded to the next larger captured shape.

    A prefill reads the embeddings of its media, and then those of its values, from `given_NC`.
    """

    def __init__(
        self, model: Model, config: EngineConfig, memory: KVMemory, cache: KVCache, last: LastHeads, graphs: Graphs
    ) -> None:
        spec, device = model.spec, model.device
        self._model = model
        self._cache = cache
        self._last = last
        self._graphs = graphs
        self._shapes = prefill_shapes(config, width=spec.media_width)
        self._buffers = PrefillBuffers(
            self._shapes,
            spec,
            pages=-(-memory.max_context // config.page_size),
            page_size=config.page_size,
            spare_seat=config.max_batch,
            device=device,
        )
        self.given_NC = torch.zeros(self._buffers.given, spec.given_dim, dtype=model.dtype, device=device)
        # outside the graphs' shared memory: it is sent to the host only after the decode has started too
        self._read_BV = torch.zeros(self._buffers.sequences, 1 + spec.values, dtype=torch.float64, device=device)

    def warm_up(self) -> None:
        """Capture all shapes."""
        for shape in sorted(self._shapes, key=lambda shape: -shape.positions):
            self._buffers.fill(shape, None)  # the capture runs on padding only
            planned = self._cache.prefills.prefill(shape) if self._cache.prefills is not None else None
            rows = self._buffers.on_device(shape, planned=planned)
            self._graphs.capture(shape, lambda shape=shape, rows=rows: self._run(shape, rows))  # type: ignore[misc]

    def shape_for(self, varlen: Varlen) -> PrefillShape | None:
        """Return the smallest captured shape that the chunks fit, or None.

        It has room for no more media than they need, because padding would take longer than the launches it saves.
        """
        if len(varlen.values) > MOST_VALUES or not all(map(is_plain, varlen.readers)):
            return None
        media = len(varlen.media_rows)
        given = next((shape.given for shape in self._shapes if shape.given >= media), None)
        for shape in self._shapes:
            fits = shape.positions >= varlen.rows and shape.sequences >= len(varlen.chunks)
            if fits and shape.given == given and shape in self._graphs:
                return shape
        return None

    def run(self, shape: PrefillShape, varlen: Varlen, copies: Several[tuple[int, int]]) -> Tensor | None:
        """Copy pages and compute chunks in a shape that they fit.

        Return the head values, (R, 1 + V), or None if no heads are read.
        """
        self._buffers.fill(shape, varlen, copies)
        if self._cache.prefills is not None:
            self._cache.prefills.plan_prefill(shape, varlen)
        read_BV = self._graphs.replay(shape)
        return read_BV[: len(varlen.readers)] if varlen.readers else None

    def _run(self, shape: PrefillShape, rows: StaticPrefill) -> Tensor:
        model = self._model
        self._cache.copy_on_device(*rows.copies_2B)
        fed, given = rows.fed, None
        if model.spec.media_width or model.spec.values:
            given = Given(rows.rows_N, self.given_NC[: len(rows.rows_N)], shape.positions)
        else:
            fed = FedRows(fed.ids_B[: shape.positions])  # nothing is given, so no row takes its padding
        x_TC = model.feed(fed, self._last)
        kv = self._cache.at(rows.positions_T, rows.slots_T, rows.layout)
        hidden_BC = model.forward(x_TC, kv, given, rows.rows_B)
        return self._read_BV[: shape.sequences].copy_(model.read(hidden_BC, rows.reads, self._last))
