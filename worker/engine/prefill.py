"""Several positions of some sequences at once, packed: images in, keys and values kept, the last positions read.

T packed positions, B images, P embeddings of an image, C model dim, R rows that read heads.
"""

from collections.abc import Sequence as Several

from torch import Tensor
from torch.profiler import record_function

from worker.engine.batch import Batch, stage
from worker.engine.captured_prefill import CapturedPrefill
from worker.engine.config import EngineConfig
from worker.engine.encoder import Encoder
from worker.engine.graphs import Graphs
from worker.engine.packing import Packed, pack
from worker.engine.pool import Pool
from worker.engine.readings import Seats, read_heads
from worker.engine.scheduler import Chunk
from worker.images import Crops, Image
from worker.model import paged_text, region, text
from worker.model.moondream import Moondream
from worker.model.weights import TextWeights

__all__ = ["Prefill"]


class Prefill:
    """Runs prefills; once warmed up with graphs the usual ones captured, for their launches take as long as their work.

    `weights` are those of the text model for many positions at once, perhaps in fp8.
    """

    def __init__(
        self, model: Moondream, config: EngineConfig, weights: TextWeights, encoder: Encoder, pool: Pool, seats: Seats
    ) -> None:
        self._model = model
        self._config = config
        self._weights = weights
        self._encoder = encoder
        self._pool = pool
        self._seats = seats
        self._captured: CapturedPrefill | None = None

    def warm_up(self, graphs: Graphs | None) -> None:
        """Capture what can be; without `graphs` nothing is."""
        self._encoder.warm_up()
        if graphs is not None:
            self._captured = CapturedPrefill(self._model, self._config, self._pool, self._seats, graphs, self._forward)
            self._captured.warm_up()

    def run(self, chunks: Several[Chunk]) -> Tensor | None:
        """Compute the chunks; returns what the heads of those that end say, as `Decoder.run`; None if none does."""
        # first of all, so that the device has work while the rest is laid out
        embeddings_BPC = self._encoder.encode([_image_of(chunk) for chunk in chunks if chunk.has_image])
        packed = pack(chunks, page_size=self._pool.page_size, bos_id=self._model.config.tokenizer.bos_id)
        shape = self._captured.shape_for(packed) if self._captured is not None else None
        if self._captured is not None and shape is not None:
            with record_function("stoop.prefill"):
                return self._captured.run(shape, packed, embeddings_BPC)
        return self._run(packed, embeddings_BPC)

    def _run(self, packed: Packed, embeddings_BPC: Tensor | None) -> Tensor | None:
        model = self._model
        batch = stage(packed, page_size=self._pool.page_size, device=model.device)
        with record_function("stoop.prefill"):
            x_TC = self._embed(batch)
            if embeddings_BPC is not None:
                for first, embeddings_PC in zip(packed.images, embeddings_BPC, strict=True):
                    x_TC[first : first + embeddings_PC.shape[0]] = embeddings_PC
            pages, reads = self._pool.at(batch.positions_T, batch.slots_T, batch.layout), batch.reads
            hidden_RC = self._forward(x_TC, pages, None if reads is None else batch.rows_R)
        if reads is None:
            return None
        with record_function("stoop.heads"):
            return read_heads(
                hidden_RC, reads.seats_R, reads.draws, weights=model.weights, seats=self._seats, regions=reads.regions
            )

    def _forward(self, x_TC: Tensor, pages: paged_text.Pages, wanted_R: Tensor | None) -> Tensor:
        return paged_text.forward(x_TC, pages, self._weights, self._model.config.text.n_heads, wanted_R=wanted_R)

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


def _image_of(chunk: Chunk) -> Crops | Image:
    image = chunk.sequence.request.image
    assert image is not None
    return image
