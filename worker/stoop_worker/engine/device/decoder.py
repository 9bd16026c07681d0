"""One position of each running sequence: fed, computed and read; on a GPU as one graph. B rows, V head values."""

from collections.abc import Sequence as Several

from torch import Tensor
from torch.profiler import record_function

from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.device.decode_buffers import DecodeBuffers, DecodeKind, StaticDecode
from stoop_worker.engine.device.heads import has_top_k
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.inputs import TOKEN, TokenInput
from stoop_worker.engine.model import Model
from stoop_worker.engine.scheduler import Chunk
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.skill import Head
from stoop_worker.engine.tensors import LastHeads

__all__ = ["Decoder", "bucket_sizes"]


class Decoder:
    """Runs decodes. With `graphs`, in captured steps for some numbers of rows, with and without the model's own heads.

    A step with a top_k is captured when the first such request comes.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig,
        memory: KVMemory,
        cache: KVCache,
        last: LastHeads,
        graphs: Graphs | None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._last = last
        self._graphs = graphs
        self._sizes = bucket_sizes(config.max_batch)
        self._buffers = DecodeBuffers(
            config.max_batch,
            model.spec,
            pages=-(-memory.max_context // config.page_size),
            page_size=config.page_size,
            spare_seat=config.max_batch,
            device=model.device,
        )

    def warm_up(self) -> None:
        """Capture the usual steps."""
        for size in reversed(self._sizes):
            for values in (True, False) if self._model.spec.values else (False,):
                self._captured(size, DecodeKind(values, top_k=False))

    def run(self, chunks: Several[Chunk]) -> Tensor:
        """Compute one position per sequence; return the head values, (B, 1 + V), or (B, 1) if all read only tokens."""
        kind = DecodeKind(
            values=any(_takes_values(chunk.sequence) for chunk in chunks),
            top_k=any(has_top_k(chunk.sequence) for chunk in chunks),
        )
        if self._graphs is not None:
            size = next(size for size in self._sizes if size >= len(chunks))
            key = self._captured(size, kind)
            self._buffers.fill(chunks)
            with record_function("stoop.decode"):
                return self._graphs.replay(key)[: len(chunks)]
        self._buffers.fill(chunks)
        width = max(-(-chunk.end // self._cache.page_size) for chunk in chunks)
        return self._step(self._buffers.on_device(len(chunks), width, kind))

    def _captured(self, size: int, kind: DecodeKind) -> tuple[str, int, DecodeKind]:
        key = "decode", size, kind
        if self._graphs is not None and key not in self._graphs:
            self._buffers.fill(())  # the capture runs on padding only
            rows = self._buffers.on_device(size, self._buffers.pages, kind)
            self._graphs.capture(key, lambda: self._step(rows))
        return key

    def _step(self, rows: StaticDecode) -> Tensor:
        model = self._model
        x_BC = model.feed(rows.fed, self._last)
        hidden_BC = model.step(x_BC, self._cache.at(rows.positions_B, rows.slots_B, rows.layout))
        return model.read(hidden_BC, rows.reads, self._last)


def bucket_sizes(most: int) -> list[int]:
    """Return the numbers of rows that are captured: in fine steps where one more row costs most, and `most` itself."""
    return [size for size in (1, 2, 4, *range(8, 64, 8), *range(64, most, 32)) if size < most] + [most]


def _takes_values(sequence: Sequence) -> bool:
    """Return whether a decode feeds or reads more than tokens."""
    if sequence.heads is not Head.TOKEN:
        return True
    if sequence.pending_input is not None:
        return sequence.pending_input.kind != TOKEN
    return not isinstance(sequence.inputs[-1], TokenInput)
