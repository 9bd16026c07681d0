"""The engine's mutable record of one request."""

from array import array
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import NamedTuple

from stoop_worker.engine.inputs import Input, MediaInput
from stoop_worker.engine.positions import INDEX, Positions
from stoop_worker.engine.request import Media, Request, Usage
from stoop_worker.engine.skill import Head, Lookahead, Skill

__all__ = ["NO_SEAT", "MediaSpan", "Sequence", "Times"]

NO_SEAT = -1


@dataclass(slots=True)
class Times:
    """Seconds on the engine's clock; None until it happens."""

    submitted: float = 0.0
    started: float | None = None
    first_token: float | None = None


class MediaSpan(NamedTuple):
    """One medium of a prompt: it is input number `at` and occupies the indices [start, end)."""

    fed: MediaInput
    media: Media
    at: int
    start: int

    @property
    def end(self) -> int:
        """The index after it."""
        return self.start + self.fed.width


@dataclass(slots=True, eq=False)
class Sequence:
    """The inputs of one request; each takes one index, except that a medium takes its width.

    While `pending_input` is set there is one more index: its input is a head value that is still on the device, in the
    sequence's `seat`, and the skill has not seen it. `rollbacks` counts mispredicted look-aheads. The indices
    [0, cached_len) are in the KV pages; `pages` covers at least these. Lost pages can be computed again from the
    request and the inputs. Each time a sequence gets a seat, `stay` is another number: as long as that stays, so do the
    seat and all pages before the last. `sampled` are the tokens that the skill has taken. The first `two_way` indices
    attend to each other. `length` is the number of known indices, computed or not, including one whose input is
    pending; it is kept up to date, because each step reads it several times.
    """

    request: Request
    skill: Skill
    inputs: list[Input]
    seed: int
    media: Several[Media] = ()
    positions: Positions = INDEX
    two_way: int = 0
    on_end: Callable[[], None] = lambda: None
    arrival: int = -1
    spans: tuple[MediaSpan, ...] = field(init=False)
    prompt_len: int = field(init=False)
    length: int = field(init=False)
    cached_len: int = 0
    sampled: list[int] = field(default_factory=list)
    hit_len: int | None = None
    pending_input: Lookahead | None = None
    rollbacks: int = 0
    seat: int = NO_SEAT
    stay: int = -1
    ended: bool = False
    pages: "array[int]" = field(default_factory=lambda: array("i"))  # 32 bits each, as in page tables
    times: Times = field(default_factory=Times)
    _extra_width: int = field(init=False)  # indices that media take beyond one per input

    def __post_init__(self) -> None:
        self.spans = tuple(_spans(self.inputs, self.media)) if self.media else ()
        self._extra_width = sum(span.fed.width - 1 for span in self.spans)
        self.length = self.prompt_len = len(self.inputs) + self._extra_width

    @property
    def pending(self) -> int:
        """The number of known indices not yet in the KV pages; 0 while the next head values are still being read."""
        return self.length - self.cached_len

    @property
    def heads(self) -> Head:
        """The heads to read from the last index's hidden state."""
        return self.skill.heads if self.pending_input is None else self.pending_input.heads

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Token ids that must not be sampled after the last index."""
        return self.skill.suppressed if self.pending_input is None else self.pending_input.suppressed

    @property
    def rule(self) -> tuple[int, ...]:
        """The family's own numbers for reading the heads of the last index."""
        return self.skill.rule if self.pending_input is None else self.pending_input.rule

    @property
    def sampled_len(self) -> int:
        """The number of tokens sampled up to the last index, including a pending one."""
        if self.pending_input is None:
            return len(self.sampled)
        only_token = self.skill.heads is Head.TOKEN  # the usual case, and flags are slow to test
        return len(self.sampled) + (only_token or Head.TOKEN in self.skill.heads)

    def input_at(self, index: int) -> int:
        """Return the number of the input that starts at an index, which is never inside a medium."""
        if not self.spans or index > self.spans[-1].start:
            return index - self._extra_width
        return index - sum(span.fed.width - 1 for span in self.spans if span.start < index)

    def spans_in(self, start: int, end: int) -> tuple[MediaSpan, ...]:
        """Return the media that start in [start, end)."""
        if not self.spans or start > self.spans[-1].start:
            return ()
        return tuple(span for span in self.spans if start <= span.start < end)

    def add(self, inputs: Several[Input]) -> None:
        """Append inputs, none of them a medium."""
        self.inputs += inputs
        self.length += len(inputs)

    def look_ahead(self, expected: Lookahead) -> None:
        """Append an index whose input is pending."""
        assert self.pending_input is None
        self.pending_input = expected
        self.length += 1

    def stop_looking_ahead(self) -> Lookahead | None:
        """Take the pending index away again, if there is one, and return what was expected of it."""
        expected = self.pending_input
        if expected is not None:
            self.pending_input = None
            self.length -= 1
        return expected

    def roll_back_to(self, length: int) -> None:
        """Discard everything computed from `length` on, including head values that have not arrived yet."""
        self.cached_len = min(self.cached_len, length)
        self.rollbacks += 1

    def usage(self, now: float) -> Usage:
        """Return the request's counts and times; `now` is its end in seconds on the engine's clock."""
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


def _spans(inputs: Several[Input], media: Several[Media]) -> Iterator[MediaSpan]:
    places = [at for at, fed in enumerate(inputs) if isinstance(fed, MediaInput)]
    start, before = 0, 0
    for at, one in zip(places, media, strict=True):
        fed = inputs[at]
        assert isinstance(fed, MediaInput)
        start += at - before  # all inputs between media are one index wide
        yield MediaSpan(fed, one, at, start)
        start, before = start + fed.width, at + 1
