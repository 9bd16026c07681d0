"""Every key and channel in Redis, built here and nowhere else.

All keys of one job carry its partition as a Redis Cluster hash tag (`{p}`), so each script touches one slot.
A generated id ends in its partition, so a job's keys follow from its id alone; any other id is of partition 0.
"""

import hashlib
import re
import secrets
from typing import Final

__all__ = [
    "CONTROL",
    "DEFAULT_LANES",
    "GROUP",
    "IMAGE_PREFIX",
    "QUARANTINES",
    "bell",
    "cancelled",
    "celery_notes",
    "dead",
    "delayed",
    "events",
    "idempotency",
    "job",
    "key_partition",
    "lane",
    "live",
    "log",
    "new_id",
    "partition",
    "paused",
    "quarantine",
    "quarantine_lane",
    "result",
    "stem",
    "tenant_lane",
    "tenants",
    "totals",
    "turns",
    "workers",
]

DEFAULT_LANES: Final = ("interactive", "bulk")
GROUP: Final = "workers"
CONTROL: Final = "stoop:control"
QUARANTINES: Final = ("small", "alone")
"""Where a job runs after its worker died under it: first in a small batch, then alone."""

IMAGE_PREFIX: Final = "uploads/"
"""Where the client puts images it uploads: `<bucket>/uploads/<sha256 of the bytes>`."""

_GENERATED: Final = re.compile(r"[0-9a-f]{32}-([0-9]{1,5})")


def new_id(p: int = 0) -> str:
    """Make an id of 128 random bits that names its partition: `<32 hex digits>-<p>`."""
    return f"{secrets.token_hex(16)}-{p}"


def partition(job_id: str) -> int:
    """Read the partition off a generated id; an id a producer brought itself is of partition 0."""
    generated = _GENERATED.fullmatch(job_id)
    return int(generated[1]) if generated else 0


def key_partition(idempotency_key: str, partitions: int) -> int:
    """Say which partition the jobs with this idempotency key live in."""
    return int.from_bytes(hashlib.blake2b(idempotency_key.encode(), digest_size=8).digest()) % partitions


def stem(p: int) -> str:
    """Return what every key of partition `p` starts with."""
    return f"stoop:{{{p}}}:"


def lane(name: str, p: int = 0) -> str:
    """Name the stream of a lane; a job is one entry with the field `j`, or `m` if it is a Celery message."""
    return f"{stem(p)}jobs:{name}"


def tenant_lane(lane_name: str, tenant: str) -> str:
    """Name the part of a lane that is one tenant's; the slash is in no lane's name."""
    return f"{lane_name}/{tenant}"


def tenants(lane_name: str, p: int = 0) -> str:
    """Name the sorted set of the tenants that have jobs in a lane, by when each had its last turn."""
    return f"{stem(p)}tenants:{lane_name}"


def quarantine_lane(kind: str) -> str:
    """Name the lane that holds the jobs of one of the `QUARANTINES`."""
    return f"quarantine:{kind}"


def quarantine(kind: str, p: int = 0) -> str:
    """Name the stream of one of the `QUARANTINES`."""
    return lane(quarantine_lane(kind), p)


def turns(p: int = 0) -> str:
    """Name the sorted set of the workers that run quarantined jobs now, by when their turn ends at the latest."""
    return f"{stem(p)}turns"


def paused(p: int = 0) -> str:
    """Name the set of lanes nothing is claimed from."""
    return f"{stem(p)}paused"


def bell(p: int = 0) -> str:
    """Name the stream of one entry that wakes idle workers for what no lane's own stream tells them."""
    return f"{stem(p)}bell"


def cancelled(p: int = 0) -> str:
    """Name the sorted set of jobs that were cancelled while they waited, for the next worker to settle."""
    return f"{stem(p)}cancelled"


def workers(p: int = 0) -> str:
    """Name the hash in which each worker tells of itself (JSON)."""
    return f"{stem(p)}workers"


def totals(p: int = 0) -> str:
    """Name the hash that counts endings by state, and `dead`, `retried` and `reclaimed`."""
    return f"{stem(p)}totals"


def celery_notes(p: int = 0) -> str:
    """Name the stream of what Celery is still to be told of jobs that came as its messages."""
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


def job(job_id: str) -> str:
    """Name the hash of a job's state, times, attempt and worker."""
    return f"{stem(partition(job_id))}job:{job_id}"


def result(job_id: str) -> str:
    """Name the key of a job's result (JSON, with a time to live)."""
    return f"{stem(partition(job_id))}result:{job_id}"


def events(job_id: str) -> str:
    """Name the pub/sub channel of a job's events."""
    return f"{stem(partition(job_id))}events:{job_id}"


def log(job_id: str) -> str:
    """Name the capped stream that keeps a job's events for whoever comes late."""
    return f"{stem(partition(job_id))}log:{job_id}"
