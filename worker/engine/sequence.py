"""The engine's moving record of one request."""

from dataclasses import dataclass, field

from worker.engine.inputs import Input
from worker.engine.request import Request, Usage
from worker.engine.skills.protocol import Skill

__all__ = ["Sequence", "Times"]


@dataclass(slots=True)
class Times:
    """Seconds on the engine's clock; None until it happens."""

    submitted: float = 0.0
    started: float | None = None
    first_token: float | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """Positions [0, prefix_len) are BOS and the image; position prefix_len + i is `inputs[i]`.

    Positions [0, cached_len) are in the KV pages; `pages` covers at least these. Losing the pages loses
    nothing else: all positions can be computed again from the request and the inputs.
    """

    request: Request
    skill: Skill
    arrival: int
    prefix_len: int
    inputs: list[Input]
    seed: int
    prompt_len: int = field(init=False)
    cached_len: int = 0
    drawn: int = 0
    hit_len: int | None = None
    pages: list[int] = field(default_factory=list)
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        self.prompt_len = self.length

    @property
    def length(self) -> int:
        """Positions known so far, computed or not."""
        return self.prefix_len + len(self.inputs)

    @property
    def pending(self) -> int:
        """Positions known but not yet in the KV pages; never 0 while the sequence lives."""
        return self.length - self.cached_len

    @property
    def digest(self) -> bytes | None:
        """What its image is known by; None without an image."""
        return None if self.request.crops is None else self.request.crops.digest

    def usage(self, now: float) -> Usage:
        """Sum the request up, `now` being its end in seconds on the engine's clock."""
        times = self.times
        started = now if times.started is None else times.started
        first = now if times.first_token is None else times.first_token
        return Usage(
            input_tokens=self.prompt_len,
            output_tokens=self.skill.output_tokens,
            cached_tokens=self.hit_len or 0,
            prefill_time_ms=1e3 * (first - started),
            decode_time_ms=1e3 * (now - first),
            ttft_ms=1e3 * (first - times.submitted),
        )
