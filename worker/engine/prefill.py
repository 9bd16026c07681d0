"""Several positions of some sequences at once, packed: images in, keys and values kept, the last positions read.

T packed positions, C model dim, R rows that read heads.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several

import torch
from torch import Tensor
from torch.profiler import record_function

from worker.engine.batch import Batch, image_of, stage
from worker.engine.encoder import Encoder
from worker.engine.graphs import Graphs
from worker.engine.pool import Pool
from worker.engine.readings import Seats, read_heads
from worker.engine.scheduler import Chunk
from worker.kernels.paged_attention import PagedLayout
from worker.model import paged_text, region, text
from worker.model.moondream import Moondream
from worker.model.weights import TextWeights

__all__ = ["Prefill"]

_GRAIN = 32  # positions from one captured size to the next
_PROMPT = 128  # positions of the longest prompt that is captured
_NOWHERE = -1  # the slot of a row that is not kept


class Prefill:
    """Runs prefills. With `graphs`, one sequence alone runs in a captured one, where launches would take longer.

    `weights` are those of the text model for many positions at once, perhaps in fp8.
    """

    def __init__(
        self, model: Moondream, weights: TextWeights, encoder: Encoder, pool: Pool, seats: Seats, graphs: Graphs | None
    ) -> None:
        self._model = model
        self._weights = weights
        self._encoder = encoder
        self._pool = pool
        self._seats = seats
        self._alone = _CapturedPrefill(model, pool, graphs, self._forward) if graphs is not None else None

    def warm_up(self) -> None:
        """Capture what can be."""
        self._encoder.warm_up()
        if self._alone is not None:
            self._alone.warm_up()

    def run(self, chunks: Several[Chunk]) -> Tensor | None:
        """Compute the chunks; returns what the heads of those that end say, as `Decoder.run`; None if none does."""
        model = self._model
        # first of all, so that the device has work while the rest is laid out
        embeddings = self._encoder.encode([image_of(chunk) for chunk in chunks if chunk.has_image])
        bos_id = model.config.tokenizer.bos_id
        batch = stage(chunks, page_size=self._pool.page_size, bos_id=bos_id, device=model.device)
        with record_function("stoop.prefill"):
            x_TC = self._embed(batch)
            for first, embeddings_PC in zip(batch.images, embeddings, strict=True):
                x_TC[first : first + embeddings_PC.shape[0]] = embeddings_PC
            hidden_TC = self._hidden(x_TC, batch)
        reads = batch.reads
        if reads is None:
            return None
        with record_function("stoop.heads"):
            hidden_RC = hidden_TC[batch.rows_R]
            return read_heads(
                hidden_RC, reads.seats_R, reads.draws, weights=model.weights, seats=self._seats, regions=reads.regions
            )

    def _hidden(self, x_TC: Tensor, batch: Batch) -> Tensor:
        if self._alone is not None and self._alone.takes(batch.layout):
            return self._alone.run(x_TC, batch)
        return self._forward(x_TC, self._pool.at(batch.positions_T, batch.slots_T, batch.layout))

    def _forward(self, x_TC: Tensor, pages: paged_text.Pages) -> Tensor:
        return paged_text.forward(x_TC, pages, self._weights, self._model.config.text.n_heads)

    def _embed(self, batch: Batch) -> Tensor:
        weights = self._model.weights
        x_TC = text.embed(batch.ids_T, weights.text)
        for injection, write in (
            (batch.coordinates, region.write_coordinate),
            (batch.sizes, region.write_size),
        ):
            if injection.rows_N.numel():
                x_TC[injection.rows_N] = write(injection.values, weights.region)
        return x_TC


class _CapturedPrefill:
    """One sequence's prefill at fixed places on the device, captured for usual prompts, alone or after an image.

    Rows beyond the sequence's own are padding: nobody attends to them, and they are not kept.
    """

    def __init__(
        self, model: Moondream, pool: Pool, graphs: Graphs, forward: Callable[[Tensor, paged_text.Pages], Tensor]
    ) -> None:
        config, device = model.config.text, model.device
        self._pool = pool
        self._graphs = graphs
        self._forward = forward
        self._prefix = config.prefix_attn
        most = _rounded_up(self._prefix + _PROMPT)
        self._x_TC = torch.zeros(most, config.dim, dtype=model.dtype, device=device)
        self._positions_T = torch.zeros(most, dtype=torch.int64, device=device)
        self._slots_T = torch.full((most,), _NOWHERE, dtype=torch.int64, device=device)
        self._starts_2 = torch.zeros(2, dtype=torch.int32, device=device)
        self._context_1 = torch.zeros(1, dtype=torch.int32, device=device)
        self._prefix_1 = torch.zeros(1, dtype=torch.int32, device=device)
        self._table_1P = torch.zeros(1, -(-config.max_context // pool.page_size), dtype=torch.int32, device=device)

    def warm_up(self) -> None:
        # what was run before must not be written again
        self._slots_T.fill_(_NOWHERE)
        sizes = {*range(_GRAIN, _PROMPT + 1, _GRAIN), *range(_rounded_up(self._prefix), len(self._x_TC) + 1, _GRAIN)}
        for size in sorted(sizes, reverse=True):
            self._graphs.capture(_key(size), lambda size=size: self._run(size))  # type: ignore[misc]

    def takes(self, layout: PagedLayout) -> bool:
        return len(layout.context_lens) == 1 and _key(_rounded_up(layout.cu_seqlens[1])) in self._graphs

    def run(self, x_TC: Tensor, batch: Batch) -> Tensor:
        count, layout = len(x_TC), batch.layout
        self._slots_T[count:].fill_(_NOWHERE)
        for place, value in (
            (self._x_TC, x_TC),
            (self._positions_T, batch.positions_T),
            (self._slots_T, batch.slots_T),
            (self._starts_2, layout.cu_seqlens_B1),
            (self._context_1, layout.context_lens_B),
            (self._prefix_1, layout.prefix_lens_B),
            (self._table_1P[0], layout.page_table_BP[0]),
        ):
            place[: len(value)].copy_(value)
        return self._graphs.replay(_key(_rounded_up(count)))

    def _run(self, size: int) -> Tensor:
        layout = PagedLayout(
            cu_seqlens_B1=self._starts_2,
            context_lens_B=self._context_1,
            page_table_BP=self._table_1P,
            prefix_lens_B=self._prefix_1,
            # how much work is launched; what is done of it is told by the tensors
            cu_seqlens=(0, size),
            context_lens=(size,),
            prefix_lens=(0,),
            page_size=self._pool.page_size,
        )
        return self._forward(self._x_TC[:size], self._pool.at(self._positions_T[:size], self._slots_T[:size], layout))


def _key(size: int) -> tuple[str, int]:
    return "prefill", size


def _rounded_up(count: int) -> int:
    return -(-count // _GRAIN) * _GRAIN
