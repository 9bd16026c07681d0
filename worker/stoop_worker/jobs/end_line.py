"""The log line of a delivery's end, with the times of its stages."""

import structlog

from stoop_schemas.result import Metrics as Spent
from stoop_worker.jobs.broker import Delivery
from stoop_worker.metrics import Ending

__all__ = ["log_end", "waited_ms"]

log = structlog.get_logger(__name__)


def waited_ms(delivery: Delivery) -> int:
    """Return the milliseconds between the job's submission and this claim, by Redis's clock."""
    return max(0, delivery.claimed_at - delivery.queued_at)


def log_end(delivery: Delivery, ending: Ending) -> None:
    """Write the one line of a delivery's end: no text of the caller's, and for an answer its times and tokens."""
    result = ending.result
    log.info(
        "job settled" if ending.ours else "job was no longer ours",
        job=delivery.job_id,
        lane=ending.lane,
        skill=result.skill if result else None,
        outcome=ending.outcome,
        code=ending.code,
        attempt=delivery.attempt,
        total_ms=round(1000 * ending.seconds, 1),
        **(_spent(result.metrics) if result and result.output else {"queue_ms": waited_ms(delivery)}),
    )


def _spent(metrics: Spent) -> dict[str, float]:
    stages = ("queue", "fetch", "image", "prefill", "decode")
    times = {f"{stage}_ms": round(getattr(metrics, f"{stage}_time_ms"), 1) for stage in stages}
    return {**times, **{f"{kind}_tokens": getattr(metrics, f"{kind}_tokens") for kind in ("input", "cached", "output")}}
