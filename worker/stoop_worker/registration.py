"""A worker's record in the registry of workers."""

import os
import socket
from dataclasses import dataclass, field
from importlib.metadata import version

import msgspec

from stoop_schemas.skills import skills
from stoop_schemas.worker import WorkerRecord
from stoop_worker.config import WorkerConfig
from stoop_worker.engine_process.protocol import Ready

__all__ = ["Registration", "describe"]


@dataclass(slots=True)
class Registration:
    """One worker's entry in the registry.

    `record` has the fields that stay the same; `started_at` is the time of the first `encode`, by Redis's clock.
    """

    record: WorkerRecord
    started_at: int | None = None
    version: str = field(default_factory=lambda: version("stoop"))

    def encode(self, now: int, in_flight: int) -> bytes:
        """Return the record as JSON."""
        if self.started_at is None:
            self.started_at = now
        record = msgspec.structs.replace(
            self.record,
            started_at=self.started_at,
            in_flight=in_flight,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self.version,
        )
        return msgspec.json.encode(record)


def describe(config: WorkerConfig, ready: Ready, permits: int) -> WorkerRecord:
    """Return the constant part of a worker's record: its model, its skills, its lanes and its sizes.

    Its skills are the model's own, and those of other packages that run one of them.
    """
    return WorkerRecord(
        name=config.name,
        serves_default=config.serve_default,
        model=ready.model,
        skills=tuple(spec.name for spec in skills().values() if (spec.runs or spec.name) in ready.skills),
        max_context=ready.max_context,
        lanes=config.served_lanes,
        permits=permits,
        max_batch=config.max_batch,
    )
