"""Every key and channel in Redis, built here and nowhere else.

All keys of one job carry its partition as a Redis Cluster hash tag (`{p}`), so each script touches one slot.
A generated id ends in its partition, so a job's keys follow from its id alone; any other id is of partition 0.
Where a function takes a job's id and `p`, `p` overrides that: an entry without a readable id is a job under the entry's
own id, in the partition where it lies.
Redis cannot filter a stream by content, so a job that names a model waits in a lane of that model: `<model>:<lane>`.
"""

import functools
import re
import secrets
from typing import Final

__all__ = [
    "CONTROL",
    "DEFAULT_LANES",
    "GROUP",
    "IMAGE_PREFIX",
    "OPEN_BATCHES",
    "QUARANTINES",
    "RESERVED",
    "bell",
    "cancelled",
    "celery_outbox",
    "dead",
    "delayed",
    "events",
    "idempotency",
    "is_generated",
    "is_reserved",
    "job",
    "lane",
    "live",
    "log",
    "model_lane",
    "new_id",
    "partition",
    "paused",
    "quarantine",
    "quarantine_lane",
    "quarantine_of",
    "quarantine_workers",
    "result",
    "stem",
    "tenant_count",
    "tenant_lane",
    "tenants",
    "totals",
    "workers",
]

DEFAULT_LANES: Final = ("interactive", "bulk")
GROUP: Final = "workers"
CONTROL: Final = "stoop:control"
OPEN_BATCHES: Final = "stoop:batches"
"""The key of the batches that the gateways of this queue have not finished."""

QUARANTINES: Final = ("small", "alone")
"""The lanes of jobs whose worker died under them: they run in a small batch first, then alone."""

RESERVED: Final = "quarantine:"
"""The prefix of the lanes into which only the workers put jobs."""

IMAGE_PREFIX: Final = "uploads/"
"""The client's folder for uploaded images, unless its configuration names another: `<bucket>/uploads/<sha256>`."""

_GENERATED: Final = re.compile(r"[0-9a-f]{32}-([0-9]{1,5})")
_QUARANTINE: Final = re.compile(rf"(?:(.+):)?{RESERVED}({'|'.join(QUARANTINES)})")


def new_id(p: int = 0) -> str:
    """Make an id of 128 random bits that names its partition: `<32 hex digits>-<p>`."""
    return f"{secrets.token_hex(16)}-{p}"


def is_generated(job_id: str) -> bool:
    """Return whether `new_id` may have made this id: the queue then knows the job from its submission on."""
    return _GENERATED.fullmatch(job_id) is not None


@functools.lru_cache(4096)  # one job's keys are named one after the other
def partition(job_id: str) -> int:
    """Return the partition that a generated id names; any other id is of partition 0."""
    generated = _GENERATED.fullmatch(job_id)
    return int(generated[1]) if generated else 0


def stem(p: int) -> str:
    """Return the start of every key of partition `p`."""
    return f"stoop:{{{p}}}:"


def lane(name: str, p: int = 0) -> str:
    """Name the stream of a lane; a job is one entry with the field `j`, or `m` if it is a Celery message."""
    return f"{stem(p)}jobs:{name}"


def model_lane(lane_name: str, model: str | None) -> str:
    """Name the lane for jobs that name a model, `<model>:<lane>`; without a model it is the lane itself.

    A lane that is the model's already stays as it is, because a model's name has no colon.
    """
    return lane_name if model is None or lane_name.startswith(f"{model}:") else f"{model}:{lane_name}"


def tenant_lane(lane_name: str, tenant: str) -> str:
    """Name one tenant's part of a lane; no lane's name has a slash."""
    return f"{lane_name}/{tenant}"


def tenants(lane_name: str, p: int = 0) -> str:
    """Name the sorted set of the tenants that have jobs in a lane, by the time of each one's last turn."""
    return f"{stem(p)}tenants:{lane_name}"


def tenant_count(lane_name: str, p: int = 0) -> str:
    """Name the upper bound on the jobs that a lane's tenants hold; it expires after a minute."""
    return f"{tenants(lane_name, p)}/count"


def quarantine_lane(kind: str, model: str | None = None) -> str:
    """Name the lane that holds the jobs of one of the `QUARANTINES`; each model has a quarantine of its own."""
    return model_lane(f"{RESERVED}{kind}", model)


def quarantine_of(lane_name: str) -> tuple[str | None, str] | None:
    """Return the model and the kind of a quarantine's lane, or None for every other lane."""
    found = _QUARANTINE.fullmatch(lane_name)
    return (found[1], found[2]) if found else None


def quarantine(kind: str, p: int = 0, model: str | None = None) -> str:
    """Name the stream of one of the `QUARANTINES`."""
    return lane(quarantine_lane(kind, model), p)


def is_reserved(lane_name: str) -> bool:
    """Return whether only the workers may put jobs into a lane of this name, which may be one of a model."""
    return f":{RESERVED}" in f":{lane_name}"


def quarantine_workers(p: int = 0, model: str | None = None) -> str:
    """Name the sorted set of the workers that run quarantined jobs now, by the latest time at which each must stop."""
    return f"{stem(p)}turns" if model is None else f"{stem(p)}turns:{model}"


def paused(p: int = 0) -> str:
    """Name the set of lanes nothing is claimed from."""
    return f"{stem(p)}paused"


def bell(p: int = 0) -> str:
    """Name the stream of one entry that wakes idle workers when no lane's own stream does."""
    return f"{stem(p)}bell"


def cancelled(p: int = 0) -> str:
    """Name the sorted set of jobs that were cancelled while they waited, for the next worker to settle."""
    return f"{stem(p)}cancelled"


def workers(p: int = 0) -> str:
    """Name the hash that holds each worker's record (JSON)."""
    return f"{stem(p)}workers"


def totals(p: int = 0) -> str:
    """Name the hash that counts endings by state and by lane (`ended:<lane>`), `dead`, `retried` and `reclaimed`."""
    return f"{stem(p)}totals"


def celery_outbox(p: int = 0) -> str:
    """Name the stream of endings that Celery has not received yet."""
    return f"{stem(p)}celery"


def dead(p: int = 0) -> str:
    """Name the stream of dead letters."""
    return f"{stem(p)}dead"


def delayed(p: int = 0) -> str:
    """Name the sorted set of jobs that wait for their next attempt."""
    return f"{stem(p)}delayed"


def live(worker: str, p: int = 0) -> str:
    """Name the key whose time to live is a worker's lease on all it has claimed."""
    return f"{stem(p)}live:{worker}"


def idempotency(key: str, p: int = 0, tenant: str | None = None) -> str:
    """Name the key that holds the id of the job submitted under an idempotency key; each tenant has keys of its own."""
    return f"{stem(p)}idem:{key}" if tenant is None else f"{stem(p)}idem/{tenant}/{key}"


def job(job_id: str, p: int | None = None) -> str:
    """Name the hash of a job's state, times, attempt and worker."""
    return f"{_stem_of(job_id, p)}job:{job_id}"


def result(job_id: str, p: int | None = None) -> str:
    """Name the key of a job's result (JSON, with a time to live)."""
    return f"{_stem_of(job_id, p)}result:{job_id}"


def events(job_id: str, p: int | None = None) -> str:
    """Name the pub/sub channel of a job's events."""
    return f"{_stem_of(job_id, p)}events:{job_id}"


def log(job_id: str, p: int | None = None) -> str:
    """Name the capped stream that keeps a job's events for late readers."""
    return f"{_stem_of(job_id, p)}log:{job_id}"


def _stem_of(job_id: str, p: int | None) -> str:
    return stem(partition(job_id) if p is None else p)
