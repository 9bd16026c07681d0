"""The stored result of a job that has ended."""

from typing import Annotated, Any

import msgspec

from stoop_schemas.failure import Failure
from stoop_schemas.skill import Output
from stoop_schemas.state import TERMINAL, State
from stoop_schemas.version import Version, current

__all__ = ["Metrics", "Result"]


class Metrics(msgspec.Struct, frozen=True):
    """The cost of one job: token counts, and times in milliseconds."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    queue_time_ms: float = 0.0
    fetch_time_ms: float = 0.0
    image_time_ms: float = 0.0
    prefill_time_ms: float = 0.0
    decode_time_ms: float = 0.0
    ttft_ms: float = 0.0


def _first_attempt() -> int:
    return 1


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a job: `output` when it completed, `failure` when it did not.

    A job with `store_output` may have an `output_address` instead of the output: the `s3://` address of its JSON.

    `status` is one of the terminal states, `finish_reason` is `stop` or `length`. `skill` is absent only when the
    job could not be read. `attempt` is the run that ended it.
    """

    v: Version = msgspec.field(default_factory=current)
    id: str
    status: State
    skill: str | None = None
    output: Output | None = None
    output_address: str | None = None
    failure: Failure | None = None
    finish_reason: Annotated[str, msgspec.Meta(pattern="^(stop|length)$")] | None = None
    metrics: Metrics = Metrics()
    attempt: int = msgspec.field(default_factory=_first_attempt)
    worker: str | None = None
    model: str | None = None
    custom_id: str | None = None
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.status not in TERMINAL:
            raise ValueError(f"a result's status is one of {', '.join(sorted(TERMINAL))}, not {self.status}")
