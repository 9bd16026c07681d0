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
from worker.model.fp8 import in_fp8
from worker.model.moondream import Moondream

__all__ = ["Runner"]


class Runner:
    """Owns all memory of the engine on the device; starts work there and waits for nothing.

    `mark` is called between the parts of its work, the longest of which is one layer of the model.
    """

    def __init__(self, model: Moondream, config: EngineConfig, *, pages: int, mark: Callable[[], None]) -> None:
        graphs = Graphs() if _can_capture(model) else None
        weights = in_fp8(model.weights) if config.fp8_linears else model.weights
        seats = Seats.of(config.max_batch + 1, model.device)
        self._pool = Pool(model, pages=pages, page_size=config.page_size, dtype=cache_dtype(config, model), mark=mark)
        encoder = Encoder(model, weights.vision, graphs, usual_crops=config.stall_crops, mark=mark)
        self._decoder = Decoder(model, config, self._pool, seats, graphs)
        self._prefill = Prefill(model, weights.text, encoder, self._pool, seats, graphs)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Make ready what would else be made while somebody waits."""
        self._prefill.warm_up()
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
    """Say whether a step waits for nothing on the host: so it is with our kernels, and not with all references."""
    return model.device.type == "cuda" and has_triton() and model.dtype is not torch.float64
