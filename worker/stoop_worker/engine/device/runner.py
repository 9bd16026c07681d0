"""Runs plans through the model: each step starts its work on the device."""

from collections.abc import Callable

import torch

from stoop_worker.engine.config import EngineConfig, KVMemory
from stoop_worker.engine.device.decoder import Decoder
from stoop_worker.engine.device.heads import PendingHeads
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.device.prefill import Prefill
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import Model
from stoop_worker.engine.scheduler import Plan
from stoop_worker.engine.tensors import LastHeads
from stoop_worker.kernels.backend import has_triton
from stoop_worker.kernels.paged_attention import HEAD_DIMS
from stoop_worker.kernels.sampling import LONGEST_ROW

__all__ = ["Runner"]


class Runner:
    """Owns all of the engine's memory on the device; starts work there and never waits for it.

    It calls `on_progress` between parts of its work: at each layer of the model, unless that is captured.
    """

    def __init__(
        self, model: Model, config: EngineConfig, memory: KVMemory, *, on_progress: Callable[[], None]
    ) -> None:
        self._model = model
        self._config = config
        self._memory = memory
        self._graphs = graphs = Graphs() if _can_capture(model) else None
        last = LastHeads.of(config.max_batch + 1, model.spec.values, model.device)
        self._cache = KVCache(
            model.spec.kv, memory, page_size=config.page_size, device=model.device, on_progress=on_progress
        )
        self._decoder = Decoder(model, config, memory, self._cache, last, graphs)
        self._prefill = Prefill(model, self._cache, last, on_progress=on_progress)

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Do the setup that would otherwise delay the first requests."""
        if self._graphs is not None:
            usual_cost = min(self._config.stall_budget, self._config.encode_budget)
            self._model.capture(self._graphs, usual_cost)
            self._prefill.warm_up(self._config, self._memory, self._graphs)
        self._decoder.warm_up()

    @torch.inference_mode()
    def run(self, plan: Plan) -> PendingHeads:
        """Start a step: copies, prefills, decodes; return its head values, which are still pending."""
        if plan.copies:
            self._cache.copy(plan.copies)
        parts = [self._prefill.run(plan.prefills)] if plan.prefills else []
        parts += [self._decoder.run(plan.decodes)] if plan.decodes else []
        sequences = [chunk.sequence for chunk in plan.chunks if chunk.is_last]
        return PendingHeads(sequences, [part for part in parts if part is not None])


def _can_capture(model: Model) -> bool:
    """Return whether our kernels run the whole step: references may wait for the host, or read its memory."""
    spec = model.spec
    taken = spec.kv.head_dim in HEAD_DIMS and spec.vocab_size <= LONGEST_ROW and model.dtype is not torch.float64
    return model.device.type == "cuda" and has_triton() and taken
