"""The usual prefills, each as one graph: images placed, keys and values kept, heads read.

T positions packed over B sequences, C model dim, P embeddings of an image, N embeddings that are given.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from worker.engine.batch import injection
from worker.engine.config import EngineConfig
from worker.engine.graphs import Graphs
from worker.engine.packing import Packed
from worker.engine.pool import Pool
from worker.engine.prefill_rows import INJECTED, PrefillRows
from worker.engine.prefill_shapes import PrefillShape, prefill_shapes
from worker.engine.readings import Seats, read_heads
from worker.engine.upload import Upload
from worker.model import paged_text, region, text
from worker.model.moondream import Moondream

__all__ = ["CapturedPrefill"]


class CapturedPrefill:
    """Prefills at fixed places on the device; what is missing to the next larger shape is padding.

    `forward` takes embeddings to the hidden states of the wanted rows.
    """

    def __init__(
        self,
        model: Moondream,
        config: EngineConfig,
        pool: Pool,
        seats: Seats,
        graphs: Graphs,
        forward: Callable[[Tensor, paged_text.Pages, Tensor], Tensor],
    ) -> None:
        sizes, device = model.config, model.device
        self._model = model
        self._pool = pool
        self._seats = seats
        self._graphs = graphs
        self._forward = forward
        self._patches = sizes.vision.patches
        self._shapes = prefill_shapes(config, prefix=sizes.text.prefix_attn)
        self._rows = PrefillRows(
            self._shapes,
            patches=self._patches,
            pages=-(-sizes.text.max_context // config.page_size),
            page_size=config.page_size,
            spare_seat=config.max_batch,
            device=device,
        )
        self._given_NC = torch.zeros(self._rows.given, sizes.text.dim, dtype=model.dtype, device=device)
        # not among what graphs share: it is sent to the host only when the decode has been started too
        self._said_B4 = torch.zeros(self._rows.sequences, 4, dtype=torch.float64, device=device)

    def warm_up(self) -> None:
        """Capture all shapes."""
        for shape in sorted(self._shapes, key=lambda shape: -shape.positions):
            self._rows.fill(shape, None)  # what runs while it is captured is padding
            self._graphs.capture(shape, lambda shape=shape: self._run(shape))  # type: ignore[misc]

    def shape_for(self, packed: Packed) -> PrefillShape | None:
        """Return the smallest captured shape that packed chunks fit, if there is one."""
        if len(packed.coordinates) + len(packed.sizes) > INJECTED:
            return None
        for shape in self._shapes:
            fits = shape.positions >= packed.starts[-1] and shape.sequences >= len(packed.chunks)
            if fits and shape.images == len(packed.images) and shape in self._graphs:
                return shape
        return None

    def run(self, shape: PrefillShape, packed: Packed, embeddings_BPC: Tensor | None) -> Tensor | None:
        """Compute packed chunks in a shape that they fit; returns what heads say, (R, 4), None if nobody reads."""
        if embeddings_BPC is not None:
            self._given_NC[: shape.images * self._patches].copy_(embeddings_BPC.flatten(0, 1))
        self._inject(shape, packed)
        self._rows.fill(shape, packed)
        said_B4 = self._graphs.replay(shape)
        return said_B4[: len(packed.readers)] if packed.readers else None

    def _inject(self, shape: PrefillShape, packed: Packed) -> None:
        if not packed.coordinates and not packed.sizes:
            return
        weights = self._model.weights.region
        upload = Upload(self._model.device)
        coordinates = injection(packed.coordinates, (), upload.to_device)
        sizes = injection(packed.sizes, (2,), upload.to_device)
        upload.send()
        embeddings_NC = torch.cat(
            (region.write_coordinate(coordinates.values, weights), region.write_size(sizes.values, weights))
        )
        first = shape.images * self._patches
        self._given_NC[first : first + len(embeddings_NC)].copy_(embeddings_NC)

    def _run(self, shape: PrefillShape) -> Tensor:
        rows, weights = self._rows.on_device(shape), self._model.weights
        x_TC = text.embed(rows.ids_T, weights.text)
        x_TC.index_copy_(0, rows.rows_N, self._given_NC[: len(rows.rows_N)])
        pages = self._pool.at(rows.positions_T, rows.slots_T, rows.layout)
        hidden_BC = self._forward(x_TC[: shape.positions], pages, rows.rows_B)
        said_B4 = read_heads(hidden_BC, rows.seats_B, rows.draws, weights=weights, seats=self._seats, regions=True)
        return self._said_B4[: shape.sequences].copy_(said_B4)
