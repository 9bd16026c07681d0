"""The engine's moving record of one request."""

from dataclasses import dataclass, field

from worker.engine.inputs import Input
from worker.engine.request import Request, Usage
from worker.engine.skills.protocol import Ahead, Head, Skill

__all__ = ["NO_SEAT", "Sequence", "Times"]

NO_SEAT = -1


@dataclass(slots=True)
class Times:
    """Seconds on the engine's clock; None until it happens."""

    submitted: float = 0.0
    started: float | None = None
    first_token: float | None = None


@dataclass(slots=True, eq=False)
class Sequence:
    """Positions [0, prefix_len) are BOS and the image; position prefix_len + i is `inputs[i]`.

    While `unread` is set there is one position more: its input is a reading that is still on the device, in the
    sequence's `seat`, and the skill has not seen it. `turns` counts how often a reading was not as looked ahead to.
    Positions [0, cached_len) are in the KV pages; `pages` covers at least these. Losing the pages loses
    nothing else: all positions can be computed again from the request and the inputs.
    """

    request: Request
    skill: Skill
    arrival: int
    prefix_len: int
    inputs: list[Input]
    seed: int
    crops: int = 0
    prompt_len: int = field(init=False)
    cached_len: int = 0
    drawn: int = 0
    hit_len: int | None = None
    unread: Ahead | None = None
    turns: int = 0
    seat: int = NO_SEAT
    pages: list[int] = field(default_factory=list)
    times: Times = field(default_factory=Times)

    def __post_init__(self) -> None:
        self.prompt_len = self.length

    @property
    def length(self) -> int:
        """Positions known so far, computed or not, one whose input is unread included."""
        return self.prefix_len + len(self.inputs) + (self.unread is not None)

    @property
    def pending(self) -> int:
        """Positions known but not yet in the KV pages; 0 when all that follows is still being read."""
        return self.length - self.cached_len

    @property
    def heads(self) -> Head:
        """What is read from the last position's hidden state."""
        return self.skill.heads if self.unread is None else self.unread.heads

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Token ids that must not be drawn after the last position."""
        return self.skill.suppressed if self.unread is None else self.unread.suppressed

    @property
    def draws(self) -> int:
        """Tokens drawn up to the last position, an unread one included."""
        return self.drawn + (self.unread is not None and Head.TOKEN in self.skill.heads)

    @property
    def digest(self) -> bytes | None:
        """What its image is known by; None without an image."""
        return None if self.request.image is None else self.request.image.digest

    def turn_back(self, length: int) -> None:
        """Forget what was computed from `length` on, and any reading of it that is under way."""
        self.cached_len = min(self.cached_len, length)
        self.turns += 1

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
