"""One position of each running sequence: fed, computed and read; on a GPU as one graph. B rows, C model dim."""

from collections.abc import Sequence as Several

import torch
from torch import Tensor
from torch.profiler import record_function

from worker.engine.config import EngineConfig
from worker.engine.decode_rows import UNREAD, DecodeRows, RowsOnDevice
from worker.engine.graphs import Graphs
from worker.engine.inputs import TokenInput
from worker.engine.pool import Pool
from worker.engine.readings import Seats, read_heads
from worker.engine.scheduler import Chunk
from worker.engine.sequence import Sequence
from worker.engine.skills import Fed, Head
from worker.model import merged_text, paged_text, region, text
from worker.model.moondream import Moondream

__all__ = ["Decoder", "bucket_sizes"]


class Decoder:
    """Runs decodes. With `graphs`, in captured steps for some numbers of rows, with and without region heads."""

    def __init__(self, model: Moondream, config: EngineConfig, pool: Pool, seats: Seats, graphs: Graphs | None) -> None:
        self._model = model
        self._pool = pool
        self._seats = seats
        self._graphs = graphs
        self._sizes = bucket_sizes(config.max_batch)
        self._rows = DecodeRows(
            config.max_batch,
            max_context=model.config.text.max_context,
            page_size=config.page_size,
            spare_seat=config.max_batch,
            device=model.device,
        )
        self._merged = merged_text.merge(model.weights.text) if graphs is not None else ()

    def warm_up(self) -> None:
        """Capture all steps."""
        for size in reversed(self._sizes):
            for regions in (True, False):
                self._captured(size, regions=regions)

    def run(self, chunks: Several[Chunk]) -> Tensor:
        """Compute one position a sequence; returns what its heads say, (B, 4), or (B, 1) if all read only tokens."""
        regions = any(_takes_regions(chunk.sequence) for chunk in chunks)
        if self._graphs is not None:
            size = next(size for size in self._sizes if size >= len(chunks))
            key = self._captured(size, regions=regions)
            self._rows.fill(chunks)
            with record_function("stoop.decode"):
                return self._graphs.replay(key)[: len(chunks)]
        self._rows.fill(chunks)
        width = max(-(-chunk.end // self._pool.page_size) for chunk in chunks)
        return self._step(self._rows.on_device(len(chunks), width), regions=regions)

    def _captured(self, size: int, *, regions: bool) -> tuple[str, int, bool]:
        key = "decode", size, regions
        if self._graphs is not None and key not in self._graphs:
            self._rows.fill(())  # what runs while it is captured is padding
            rows = self._rows.on_device(size, self._rows.pages)
            self._graphs.capture(key, lambda: self._step(rows, regions=regions))
        return key

    def _step(self, rows: RowsOnDevice, *, regions: bool) -> Tensor:
        x_BC = self._feed(rows, regions=regions)
        pages = self._pool.at(rows.positions_B, rows.slots_B, rows.layout)
        weights = self._model.weights
        if self._merged:
            hidden_BC = merged_text.step(x_BC, pages, self._merged)
        else:
            hidden_BC = paged_text.forward(x_BC, pages, weights.text, self._model.config.text.n_heads)
        return read_heads(hidden_BC, rows.seats_B, rows.draws, weights=weights, seats=self._seats, regions=regions)

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


def bucket_sizes(most: int) -> list[int]:
    """Return the numbers of rows that are captured: fine where a row more costs most, and `most` itself."""
    return [size for size in (1, 2, 4, *range(8, 64, 8), *range(64, most, 32)) if size < most] + [most]


def _takes_regions(sequence: Sequence) -> bool:
    """Say whether a decode feeds or reads more than tokens."""
    if sequence.heads is not Head.TOKEN:
        return True
    if sequence.unread is not None:
        return sequence.unread.fed is not Fed.TOKEN
    return not isinstance(sequence.inputs[-1], TokenInput)
