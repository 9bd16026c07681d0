"""Counts of the engine's work and of the resources it holds, for metrics."""

from dataclasses import dataclass, fields, replace
from typing import Final

from stoop_worker.engine.request import Usage
from stoop_worker.engine.scheduler import Plan, Scheduler
from stoop_worker.figures import Figures, Histogram

__all__ = ["Stats", "Totals"]

_NO_STEPS = Histogram((0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5))
_NO_BATCHES = Histogram((1, 2, 4, 8, 16, 32, 64, 128, 256))


@dataclass(slots=True)
class Totals:
    """Sums since the start. A step is timed as one kind: `encode` if it encoded media, else `prefill`, else `decode`.

    `batch_sequences` has the sizes of the steps' batches. `image_hits` counts finished requests whose images came from
    the cache.

    `crops_encoded` is the cost of all encoded media, in the family's unit. `decode_tokens` includes tokens computed
    ahead and discarded.
    """

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    images_encoded: int = 0
    crops_encoded: int = 0
    image_hits: int = 0
    preemptions: int = 0
    finished: int = 0
    refused: int = 0
    aborted: int = 0
    encode_step_seconds: Histogram = _NO_STEPS
    prefill_step_seconds: Histogram = _NO_STEPS
    decode_step_seconds: Histogram = _NO_STEPS
    batch_sequences: Histogram = _NO_BATCHES

    def add_step(self, plan: Plan, seconds: float) -> None:
        """Add one step."""
        media = [span.fed for chunk in plan.prefills for span in chunk.media]
        if media:
            self.encode_step_seconds = self.encode_step_seconds.with_value(seconds)
        elif plan.prefills:
            self.prefill_step_seconds = self.prefill_step_seconds.with_value(seconds)
        else:
            self.decode_step_seconds = self.decode_step_seconds.with_value(seconds)
        self.steps += 1
        self.batch_sequences = self.batch_sequences.with_value(len(plan.chunks))
        self.prefill_tokens += sum(chunk.end - chunk.start for chunk in plan.prefills)
        self.decode_tokens += len(plan.decodes)
        self.images_encoded += len(media)
        self.crops_encoded += sum(fed.cost for fed in media)
        self.preemptions += plan.preempted

    def add_texts(self, tokens: int, requests: int, seconds: float) -> None:
        """Add one step of an encoder, which computed the texts of some requests."""
        self.steps += 1
        self.prefill_tokens += tokens
        self.prefill_step_seconds = self.prefill_step_seconds.with_value(seconds)
        self.batch_sequences = self.batch_sequences.with_value(requests)

    def add_finished(self, usage: Usage, *, image_hit: bool) -> None:
        """Add one finished request."""
        self.finished += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        self.image_hits += image_hit


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of the totals and of the engine's current holdings. Only the cache keeps idle pages."""

    totals: Totals
    waiting: int
    running: int
    pages: int
    pages_used: int
    pages_idle: int

    @property
    def figures(self) -> Figures:
        """All figures by name; the names of sums end in `_total`."""
        held = {name: getattr(self, name) for name in _HELD}
        return {**held, **{shown: getattr(self.totals, name) for name, shown in _SHOWN}}

    @classmethod
    def of(cls, totals: Totals, scheduler: Scheduler) -> "Stats":
        """Take the snapshot."""
        pool = scheduler.pool
        return cls(
            totals=replace(totals),
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            pages=pool.count,
            pages_used=pool.used,
            pages_idle=pool.idle,
        )


_HELD: Final = tuple(field.name for field in fields(Stats) if field.name != "totals")
_SHOWN: Final = tuple(
    (field.name, field.name if isinstance(field.default, Histogram) else f"{field.name}_total")
    for field in fields(Totals)
)
