"""What is kept of a job when it has ended."""

from typing import Any

import msgspec

from schemas.failure import Failure
from schemas.skill import Output, Skill
from schemas.state import State

__all__ = ["Metrics", "Result"]


class Metrics(msgspec.Struct, frozen=True):
    """What one job cost: token counts, and times in milliseconds."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    queue_time_ms: float = 0.0
    fetch_time_ms: float = 0.0
    image_time_ms: float = 0.0
    prefill_time_ms: float = 0.0
    decode_time_ms: float = 0.0
    ttft_ms: float = 0.0


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a job: `output` when it completed, `failure` when it did not.

    `status` is one of the terminal states. `skill` is absent only when the job could not be read.
    """

    id: str
    status: State
    v: int = 1
    skill: Skill | None = None
    output: Output | None = None
    failure: Failure | None = None
    finish_reason: str | None = None
    metrics: Metrics = Metrics()
    attempt: int = 1
    worker: str | None = None
    model: str | None = None
    custom_id: str | None = None
    metadata: dict[str, Any] | None = None
