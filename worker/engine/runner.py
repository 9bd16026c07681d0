"""Batches through the model: encode, prefill, decode, and the heads.

T packed positions, B rows of a decode, C model dim, H heads, D head dim, R rows that read heads.
"""

from collections.abc import Callable
from collections.abc import Sequence as Several
from functools import cache

import torch
from torch import Tensor
from torch.profiler import record_function

from worker.engine.batch import Batch, stage
from worker.engine.config import EngineConfig
from worker.engine.decode_rows import UNREAD, DecodeRows, RowsOnDevice
from worker.engine.graphs import DecodeGraphs
from worker.engine.inputs import TokenInput
from worker.engine.readings import Readings, Seats, read_heads
from worker.engine.sampler import Draws
from worker.engine.scheduler import Chunk, Plan
from worker.engine.sequence import Sequence
from worker.engine.skills import Fed, Head
from worker.engine.upload import Upload
from worker.kernels.backend import has_triton
from worker.kernels.paged_attention import PagedLayout
from worker.kernels.rotate_write import rotation_table
from worker.model import merged_text, paged_text, region, text, vision
from worker.model.merged_text import MergedBlock, merge
from worker.model.moondream import Moondream

__all__ = ["Runner"]


class Runner:
    """Owns the KV pool and the seats; starts work on the device and waits for nothing.

    `mark` is called between the parts of its work, the longest of which is one layer of the model.
    """

    def __init__(self, model: Moondream, config: EngineConfig, *, pages: int, mark: Callable[[], None]) -> None:
        shape = model.config.text
        self._model = model
        self._mark = mark
        self._page_size = config.page_size
        pool_shape = (shape.n_layers, 2, pages, config.page_size, shape.n_heads, shape.head_dim)
        self._pool = torch.zeros(pool_shape, dtype=model.dtype, device=model.device)
        self._rotations_SF2 = rotation_table(
            shape.max_context, shape.rotary_dim, shape.rope_theta, dtype=model.dtype, device=model.device
        )
        self._seats = Seats.of(config.max_batch + 1, model.device)
        self._rows = DecodeRows(
            config.max_batch,
            max_context=shape.max_context,
            page_size=config.page_size,
            spare_seat=config.max_batch,
            device=model.device,
        )
        self._merged: tuple[MergedBlock, ...] = ()
        self._graphs: DecodeGraphs | None = None
        if model.device.type == "cuda" and has_triton() and model.dtype is not torch.float64:
            self._prepare_graphs(config.max_batch)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Make ready what would else be made while somebody waits."""
        if self._graphs is not None:
            self._graphs.capture()

    @torch.inference_mode()
    def run(self, plan: Plan) -> Readings:
        """Start a step: copies, prefills, decodes; returns what the heads will have said."""
        if plan.copies:
            self._copy_pages(plan.copies)
        sequences: list[Sequence] = []
        parts: list[Tensor] = []
        for chunks, start in ((plan.prefills, self._prefill), (plan.decodes, self._decode)):
            if any(chunk.reads for chunk in chunks):
                sequences += [chunk.sequence for chunk in chunks if chunk.reads]
            if chunks and (part := start(chunks)) is not None:
                parts.append(part)
        return Readings(sequences, parts)

    def _copy_pages(self, copies: Several[tuple[int, int]]) -> None:
        """Copy whole pages, (from, to), in all layers at once."""
        upload = Upload(self._pool.device)
        sources, targets = upload.to_device(copies, torch.int64).unbind(1)
        upload.send()
        self._pool[:, :, targets] = self._pool[:, :, sources]

    def _prefill(self, chunks: Several[Chunk]) -> Tensor | None:
        """Compute several positions a sequence, encoding the images that are among them."""
        model = self._model
        bos_id = model.config.tokenizer.bos_id
        batch = stage(chunks, page_size=self._page_size, bos_id=bos_id, device=model.device)
        embeddings = self._encode(batch)
        with record_function("stoop.prefill"):
            x_TC = self._embed(batch)
            for (first, _), embeddings_PC in zip(batch.images, embeddings, strict=True):
                x_TC[first : first + embeddings_PC.shape[0]] = embeddings_PC
            pages = self._pages(batch.positions_T, batch.slots_T, batch.layout)
            hidden_TC = paged_text.forward(x_TC, pages, model.weights.text, model.config.text.n_heads)
        reads = batch.reads
        if reads is None:
            return None
        with record_function("stoop.heads"):
            return self._read(hidden_TC[batch.rows_R], reads.seats_R, reads.draws, regions=reads.regions)

    def _decode(self, chunks: Several[Chunk]) -> Tensor:
        """Compute one position a sequence."""
        regions = any(_takes_regions(chunk.sequence) for chunk in chunks)
        if self._graphs is not None:
            replay = self._graphs.ready(len(chunks), regions=regions)
            self._rows.fill(chunks)
            with record_function("stoop.decode"):
                return replay()[: len(chunks)]
        self._rows.fill(chunks)
        width = max(-(-chunk.end // self._page_size) for chunk in chunks)
        return self._step(self._rows.on_device(len(chunks), width), regions=regions)

    def _prepare_graphs(self, most: int) -> None:
        self._merged = merge(self._model.weights.text)
        on_device = cache(lambda rows: self._rows.on_device(rows, self._rows.pages))
        self._graphs = DecodeGraphs(
            lambda rows, regions: self._step(on_device(rows), regions=regions), lambda: self._rows.fill(()), most
        )

    def _step(self, rows: RowsOnDevice, *, regions: bool) -> Tensor:
        x_BC = self._feed(rows, regions=regions)
        pages = self._pages(rows.positions_B, rows.slots_B, rows.layout)
        if self._merged:
            hidden_BC = merged_text.step(x_BC, pages, self._merged)
        else:
            hidden_BC = paged_text.forward(x_BC, pages, self._model.weights.text, self._model.config.text.n_heads)
        return self._read(hidden_BC, rows.seats_B, rows.draws, regions=regions)

    def _encode(self, batch: Batch) -> list[Tensor]:
        if not batch.images:
            return []
        model = self._model
        with record_function("stoop.vision"):
            return vision.encode(
                [image for _, image in batch.images],
                model.weights.vision,
                model.config.vision,
                device=model.device,
                dtype=model.dtype,
                after_block=self._mark,
            )

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

    def _feed(self, rows: RowsOnDevice, *, regions: bool) -> Tensor:
        """Embed each row's input, unread ones from their seats."""
        weights, seats = self._model.weights, self._seats
        unread_B = rows.ids_B == UNREAD
        ids_B = torch.where(unread_B, seats.tokens_S[rows.seats_B], rows.ids_B)
        x_BC = text.embed(ids_B, weights.text)
        if not regions:
            return x_BC
        x_B, y_B = rows.values_2B
        coordinates_B = torch.where(unread_B, seats.coordinates_S[rows.seats_B].double(), x_B)
        sizes_B2 = torch.where(unread_B[:, None], seats.sizes_S2[rows.seats_B].double(), torch.stack((x_B, y_B), dim=1))
        marked_B = (rows.fed_B == Fed.MARKED.value) & (ids_B == self._model.config.tokenizer.coord_id)
        is_coordinate_B = marked_B | (rows.fed_B == Fed.COORDINATE.value)
        is_size_B = rows.fed_B == Fed.SIZE.value
        x_BC = torch.where(is_coordinate_B[:, None], region.write_coordinate(coordinates_B, weights.region), x_BC)
        return torch.where(is_size_B[:, None], region.write_size(sizes_B2, weights.region), x_BC)

    def _pages(self, positions_T: Tensor, slots_T: Tensor, layout: PagedLayout) -> paged_text.Pages:
        return paged_text.Pages(positions_T, slots_T, layout, self._pool, self._rotations_SF2, self._mark)

    def _read(self, hidden_RC: Tensor, seats_R: Tensor, draws: Draws, *, regions: bool) -> Tensor:
        weights = self._model.weights
        return read_heads(hidden_RC, seats_R, draws, weights=weights, seats=self._seats, regions=regions)


def _takes_regions(sequence: Sequence) -> bool:
    """Say whether a decode feeds or reads more than tokens."""
    if sequence.heads is not Head.TOKEN:
        return True
    if sequence.unread is not None:
        return sequence.unread.fed is not Fed.TOKEN
    return not isinstance(sequence.inputs[-1], TokenInput)
