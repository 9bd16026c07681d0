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

    def _plan_attention(self) -> None:
        """Have FlashInfer plan attention, or use our own kernels if FlashInfer's do not compile."""
        kv = self._model.spec.kv
        heads, config = self._model.spec.query_heads, self._config
        assert heads is not None, "FlashInfer is chosen only for models whose attention it can plan"
        sizes = HeadSizes(heads, kv.heads, kv.head_dim, config.page_size, self._model.dtype)
        library = FlashInfer(sizes, self._model.device, rows=config.max_batch)
        try:
            library.load_kernels()
        except (RuntimeError, OSError, SubprocessError) as error:
            self.attention = without_flashinfer(config.attention, error)
            return
        planned = PlannedAttention(library, sequences=config.max_batch, pages=self._cache.longest_table)
        self._cache.prefills = planned if self.attention.prefill == FLASHINFER else None
        self._cache.decodes = planned if self.attention.decode == FLASHINFER else None

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Do the setup that would otherwise delay the first requests."""
        if self._graphs is not None:
            usual_cost = min(self._config.stall_budget, self._config.encode_budget)
            self._model.capture(self._graphs, usual_cost)
            self._prefill.warm_up(self._config, self._memory, self._graphs)
        self._decoder.warm_up()

    @torch.inference_mode()
    def run(self, plan: Plan) -> "Started":
        """Start a step: prefills, with the copies of pages before them, and decodes."""
        assert plan.prefills or not plan.copies, "only a sequence that is admitted needs a copy"
        joined = _can_join(plan, self._model.spec.joins_decodes)
        chunks = plan.chunks if joined else plan.prefills
        read = self._prefill.run(chunks, plan.copies) if plan.prefills else None
        parts: list[Tensor | LateRead] = [] if read is None else [read]
        parts += [self._decoder.run(plan.decodes)] if plan.decodes and not joined else []
        prefilled = [chunk.sequence for chunk in plan.prefills if chunk.is_last]
        return Started([*prefilled, *(chunk.sequence for chunk in plan.decodes)], parts)


class Started:
    """A step on the device; only its decodes with masks may still have their heads to read."""

    def __init__(self, sequences: Several[Sequence], parts: Several[Tensor | LateRead]) -> None:
        """Send the head values of `parts` to the host; together they have one row per sequence."""
        read = [part for part in parts if isinstance(part, Tensor)]
        self._asked = [(sequence, sequence.rollbacks) for sequence in sequences]  # some may roll back before `heads`
        self._parts = parts
        self._heads = PendingHeads(self._asked, read) if len(read) == len(parts) else None

    @property
    def is_late(self) -> bool:
        """True if heads are still to be read."""
        return self._heads is None

    def heads(self) -> PendingHeads:
        """Return the head values, which are still pending; by now the skills must have taken all earlier ones."""
        if self._heads is None:
            self._heads = self._read_late()
        return self._heads

    @torch.inference_mode()
    def _read_late(self) -> PendingHeads:
        return PendingHeads(self._asked, [part if isinstance(part, Tensor) else part() for part in self._parts])


def _can_join(plan: Plan, most: int) -> bool:
    """Return whether the decodes may be rows of the prefills: they take only tokens, and images take longer anyway."""
    decodes = [chunk.sequence for chunk in plan.decodes]
    if not 0 < len(decodes) <= most or not any(chunk.media for chunk in plan.prefills):
        return False
    return all(is_plain(sequence) and not takes_values(sequence) for sequence in decodes)


def _can_capture(model: Model) -> bool:
    """Return whether our kernels run the whole step: references may wait for the host, or read its memory."""
    spec = model.spec
    taken = spec.kv.head_dim in HEAD_DIMS and spec.vocab_size <= LONGEST_ROW and model.dtype is not torch.float64
    return model.device.type == "cuda" and has_triton() and taken
