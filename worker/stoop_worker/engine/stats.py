"""Counts of the engine's work and of the resources it holds, for metrics."""

from dataclasses import asdict, dataclass, fields, replace

from stoop_worker.engine.request import Usage
from stoop_worker.engine.scheduler import Plan, Scheduler

__all__ = ["Stats", "Totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the start. `image_hits` counts finished requests whose images came from the cache.

    `crops_encoded` is the cost of all encoded media, in the family's unit. `decode_tokens` includes tokens computed
    ahead in vain.
    """

    steps: int = 0
    step_seconds: float = 0.0
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

    def with_step(self, plan: Plan, seconds: float) -> "Totals":
        """Add one step."""
        media = [span.fed for chunk in plan.prefills for span in chunk.media]
        return replace(
            self,
            steps=self.steps + 1,
            step_seconds=self.step_seconds + seconds,
            prefill_tokens=self.prefill_tokens + sum(chunk.end - chunk.start for chunk in plan.prefills),
            decode_tokens=self.decode_tokens + len(plan.decodes),
            images_encoded=self.images_encoded + len(media),
            crops_encoded=self.crops_encoded + sum(fed.cost for fed in media),
            preemptions=self.preemptions + plan.preempted,
        )

    def with_finished(self, usage: Usage, *, image_hit: bool) -> "Totals":
        """Add one finished request."""
        return replace(
            self,
            finished=self.finished + 1,
            input_tokens=self.input_tokens + usage.input_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cached_tokens=self.cached_tokens + usage.cached_tokens,
            image_hits=self.image_hits + image_hit,
        )

    def with_refused(self) -> "Totals":
        """Add one refused request."""
        return replace(self, refused=self.refused + 1)

    def with_aborted(self) -> "Totals":
        """Add one aborted request."""
        return replace(self, aborted=self.aborted + 1)


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
    def figures(self) -> dict[str, float]:
        """All figures by name; the names of totals end in `_total`."""
        held = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "totals"}
        return {**held, **{f"{name}_total": value for name, value in asdict(self.totals).items()}}

    @classmethod
    def of(cls, totals: Totals, scheduler: Scheduler) -> "Stats":
        """Take the snapshot."""
        pool = scheduler.pool
        return cls(
            totals=totals,
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            pages=pool.count,
            pages_used=pool.used,
            pages_idle=pool.idle,
        )
