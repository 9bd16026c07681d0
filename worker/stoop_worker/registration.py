"""A worker's record in the registry of workers."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version

import msgspec

from stoop_schemas.skills import skills
from stoop_schemas.worker import WorkerRecord
from stoop_worker.config import WorkerConfig
from stoop_worker.engine_process.protocol import Ready
from stoop_worker.errors import QueueUnavailable
from stoop_worker.jobs.backoff import Backoff
from stoop_worker.jobs.broker import Broker

__all__ = ["Registration", "describe", "enter_registry"]


@dataclass(slots=True)
class Registration:
    """One worker's entry in the registry.

    `record` has the fields that stay the same; `started_at` is the time of the first `encode`, by Redis's clock.
    `tokens` is the prompt and the generated tokens at the last `encode`, and its time.
    """

    record: WorkerRecord
    started_at: int | None = None
    tokens: tuple[float, float, int] = (0.0, 0.0, 0)
    version: str = field(default_factory=lambda: version("stoop"))

    def encode(self, now: int, in_flight: int, figures: Mapping[str, object]) -> bytes:
        """Return the record as JSON. `figures` are the engine's own."""
        if self.started_at is None:
            self.started_at = now
        prompt, generated = self._speeds(now, figures)
        record = msgspec.structs.replace(
            self.record,
            started_at=self.started_at,
            in_flight=in_flight,
            prompt_tokens_per_second=prompt,
            generated_tokens_per_second=generated,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self.version,
        )
        return msgspec.json.encode(record)

    def _speeds(self, now: int, figures: Mapping[str, object]) -> tuple[float, float]:
        """Return prompt and generated tokens a second since the last call; a new engine counts from 0 again."""
        read, written = _count(figures, "prefill_tokens_total"), _count(figures, "decode_tokens_total")
        read_before, written_before, before = self.tokens
        self.tokens = read, written, now
        seconds = (now - before) / 1000
        if before == 0 or seconds <= 0:
            return 0.0, 0.0
        return _speed(read, read_before, seconds), _speed(written, written_before, seconds)


async def enter_registry(broker: Broker, record: Callable[[], bytes], backoff: Backoff | None = None) -> None:
    """Put the worker's record into the registry; during an outage of Redis, try until it succeeds."""
    backoff = backoff or Backoff()
    while True:
        try:
            await broker.extend(record())
            return
        except QueueUnavailable:
            await asyncio.sleep(backoff.next())


def _count(figures: Mapping[str, object], name: str) -> float:
    value = figures.get(name)
    return value if isinstance(value, int | float) else 0.0


def _speed(count: float, before: float, seconds: float) -> float:
    return round((count - before if count >= before else count) / seconds, 1)


def describe(config: WorkerConfig, ready: Ready, permits: int) -> WorkerRecord:
    """Return the constant part of a worker's record: its model, its skills, its lanes and its sizes.

    Its skills are the model's own, and those of other packages that run one of them.
    """
    return WorkerRecord(
        name=config.name,
        serves_default=config.serve_default,
        model=ready.model,
        device=ready.device,
        skills=tuple(spec.name for spec in skills().values() if (spec.runs or spec.name) in ready.skills),
        max_context=ready.max_context,
        lanes=config.served_lanes,
        permits=permits,
        max_batch=config.max_batch,
    )
