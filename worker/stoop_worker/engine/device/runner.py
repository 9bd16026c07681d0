"""Runs plans through the model: each step starts its work on the device."""

from collections.abc import Callable
from collections.abc import Sequence as Several
from subprocess import SubprocessError

import torch
from torch import Tensor

from stoop_worker.engine.config import FLASHINFER, EngineConfig, KVMemory
from stoop_worker.engine.device.attention_choice import AttentionFacts, choose_attention, without_flashinfer
from stoop_worker.engine.device.batch import RowLimits
from stoop_worker.engine.device.decoder import Decoder, LateRead, takes_values
from stoop_worker.engine.device.heads import PendingHeads, is_plain
from stoop_worker.engine.device.kv_cache import KVCache
from stoop_worker.engine.device.penalties import TokenCounts
from stoop_worker.engine.device.planned_attention import PlannedAttention
from stoop_worker.engine.device.prefill import Prefill
from stoop_worker.engine.grammars.masks import Masks
from stoop_worker.engine.graphs import Graphs
from stoop_worker.engine.model import Model
from stoop_worker.engine.scheduler import Plan
from stoop_worker.engine.sequence import Sequence
from stoop_worker.engine.tensors import LastHeads
from stoop_worker.kernels.backend import has_triton
from stoop_worker.kernels.paged_attention import HEAD_DIMS
from stoop_worker.kernels.paged_attention.flashinfer import FlashInfer, HeadSizes
from stoop_worker.kernels.sampling import LONGEST_ROW

__all__ = ["Runner", "Started"]


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
        self.attention = choose_attention(config.attention, AttentionFacts.of(model, memory))
        if FLASHINFER in (self.attention.prefill, self.attention.decode):
            self._plan_attention()
        vocabulary = model.spec.vocab_size
        counts = TokenCounts(config.max_batch + 1, vocabulary, model.device)
        limits = RowLimits(Masks(), counts, vocabulary)
        self._decoder = Decoder(model, config, self._cache, last, limits, graphs)
        self._prefill = Prefill(model, self._cache, last, limits, on_progress=on_progress)

    def _can_capture(model: Model) -> bool:
    """Return whether our kernels run the whole step: references may wait for the host, or read its memory."""
    spec = model.spec
    taken = spec.kv.head_dim in HEAD_DIMS and spec.vocab_size <= LONGEST_ROW and model.dtype is not torch.float64
    return model.device.type == "cuda" and has_triton() and taken
