"""Plans through the model: what each step starts on the device."""

from collections.abc import Callable

import torch

from worker.engine.config import EngineConfig, cache_dtype
from worker.engine.decoder import Decoder
from worker.engine.encoder import Encoder
from worker.engine.graphs import Graphs
from worker.engine.pool import Pool
from worker.engine.prefill import Prefill
from worker.engine.readings import Readings, Seats
from worker.engine.scheduler import Plan
from worker.kernels.backend import has_triton
from worker.kernels.paged_attention import HEAD_DIMS
from worker.kernels.sampling import LONGEST_ROW
from worker.model.moondream import Moondream
from worker.model.weights import Weights

__all__ = ["Runner"]


class Runner:
    """Owns all memory of the engine on the device; starts work there and waits for nothing.

    `weights` are those for images and prompts, perhaps in fp8. `mark` is called between the parts of its work: each
    layer of the model, where that is not captured.
    """

    def __init__(
        self, model: Moondream, config: EngineConfig, weights: Weights, *, pages: int, mark: Callable[[], None]
    ) -> None:
        self._graphs = graphs = Graphs() if _can_capture(model) else None
        seats = Seats.of(config.max_batch + 1, model.device)
        self._pool = Pool(model, pages=pages, page_size=config.page_size, dtype=cache_dtype(config, model), mark=mark)
        usual_crops = min(config.stall_crops, config.crop_budget)
        encoder = Encoder(model, weights.vision, graphs, usual_crops=usual_crops, mark=mark)
        self._decoder = Decoder(model, config, self._pool, seats, graphs)
        self._prefill = Prefill(model, config, weights.text, encoder, self._pool, seats)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Make ready what would else be made while somebody waits."""
        self._prefill.warm_up(self._graphs)
        self._decoder.warm_up()

    @torch.inference_mode()
    def run(self, plan: Plan) -> Readings:
        """Start a step: copies, prefills, decodes; returns what the heads will have said."""
        if plan.copies:
            self._pool.copy(plan.copies)
        parts = [self._prefill.run(plan.prefills)] if plan.prefills else []
        parts += [self._decoder.run(plan.decodes)] if plan.decodes else []
        sequences = [chunk.sequence for chunk in plan.chunks if chunk.reads]
        return Readings(sequences, [part for part in parts if part is not None])


def _can_capture(model: Moondream) -> bool:
    """Say whether all of a step is our kernels: references may wait for the host, or read what is there alone."""
    text = model.config.text
    taken = text.head_dim in HEAD_DIMS and text.vocab_size <= LONGEST_ROW and model.dtype is not torch.float64
    return model.device.type == "cuda" and has_triton() and taken
