"""Runs several positions of some sequences at once: encodes media, stores keys and values, reads the last positions.

Decodes may join, with one position each.

T positions packed over sequences, C model dim, R rows whose heads are read, N rows whose embeddings are given.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import replace

import torch
from torch import Tensor

from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.device.batch import RowLimits, send_values, stage
from stoop_worker.engine.device.captured_prefill import CapturedPrefill
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.device.varlen import Varlen, lay_out, media_of
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import Model
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.tensors import Given, LastHeads
from stoop_worker.kernels.profiling import named_part

__all__ = ["Prefill"]


class Prefill:
    """Runs prefills. After warm-up the usual ones replay graphs, because their launches take as long as their work.

    It calls `on_progress` between parts of the encoding that are not captured.
    """

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        last: LastHeads,
        limits: RowLimits,
        *,
        on_progress: Callable[[], None],
    ) -> None:
        self._model = model
        self._limits = limits
        self._cache = cache
        self._last = last
        self._on_progress = on_progress
        self._captured: CapturedPrefill | None = None

    def warm_up(self, config: EngineConfig, memory: KVMemory, graphs: Graphs) -> None:
        """Capture the usual prefills."""
        self._captured = CapturedPrefill(self._model, config, memory, self._cache, self._last, graphs)
        self._captured.warm_up()

    def run(self, chunks: Several[Chunk], copies: Several[tuple[int, int]]) -> Tensor | None:
        """Copy pages, (from, to), and compute the chunks.

        Return the head values of those that end, as `Decoder.run` does, or None if none ends.
        """
        # first of all, so that the device has work while the rest is laid out
        given_NC = self._encode(chunks)
        varlen = lay_out(chunks, page_size=self._cache.page_size)
        shape = self._captured.shape_for(varlen) if self._captured is not None else None
        if varlen.values:
            given_NC = self._feed_values(varlen, given_NC)
        if self._captured is not None and shape is not None:
            with named_part("stoop.prefill"):
                return self._captured.run(shape, varlen, copies)
        if copies:
            self._cache.copy(copies)
        return self._run(varlen, given_NC)

    def _encode(self, chunks: Several[Chunk]) -> Tensor:
        """Return the embeddings of the chunks' media, in the captured prefills' own memory if they fit there."""
        rows = sum(span.fed.width for chunk in chunks for span in chunk.media)
        given_NC = self._room(rows)
        if rows:
            self._model.encode(media_of(chunks), given_NC, self._on_progress)
        return given_NC

    def _room(self, rows: int) -> Tensor:
        if self._captured is not None and rows <= len(self._captured.given_NC):
            return self._captured.given_NC[:rows]
        model = self._model
        return torch.empty(rows, model.spec.given_dim, dtype=model.dtype, device=model.device)

    def _feed_values(self, varlen: Varlen, media_NC: Tensor) -> Tensor:
        """Put the embeddings of values after those of media."""
        model = self._model
        fed = send_values(varlen.values, model.spec.fed_values, model.device)
        given_NC = self._room(len(media_NC) + len(varlen.values))
        if given_NC.data_ptr() != media_NC.data_ptr():
            given_NC[: len(media_NC)] = media_NC
        given_NC[len(media_NC) :] = model.feed(fed, self._last)
        return given_NC

    def _run(self, varlen: Varlen, given_NC: Tensor) -> Tensor | None:
        model = self._model
        batch = stage(varlen, self._limits, page_size=self._cache.page_size, rule=model.spec.rule, device=model.device)
        planned = self._cache.prefills.plan(varlen) if self._cache.prefills is not None else None
        with named_part("stoop.prefill"):
            x_TC = model.feed(batch.fed, self._last)
            given = Given(batch.rows_N, given_NC, varlen.rows) if len(given_NC) else None
            kv = self._cache.at(batch.positions_T, batch.slots_T, replace(batch.layout, planned=planned))
            hidden_RC = model.forward(x_TC, kv, given, batch.rows_R if batch.reads else None)
        if batch.reads is None:
            return None
        with named_part("stoop.heads"):
            return model.read(hidden_RC, batch.reads, self._last)
