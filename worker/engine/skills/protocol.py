"""What the engine asks of a skill, and what passes between the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Protocol

from worker.engine.inputs import Input
from worker.engine.request import FinishReason, Output, Usage

__all__ = ["Advance", "Ahead", "Fed", "Head", "Reading", "Skill"]


class Head(Flag):
    """The heads that can be read from one hidden state."""

    TOKEN = auto()
    COORDINATE = auto()
    SIZE = auto()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the asked-for heads say of one hidden state; the others are None.

    `coordinate` and `size` (width, height) are fractions of the image.
    """

    token: int | None = None
    coordinate: float | None = None
    size: tuple[float, float] | None = None


class Fed(Enum):
    """Which part of a reading becomes the next input."""

    TOKEN = auto()
    COORDINATE = auto()
    SIZE = auto()
    MARKED = auto()
    """The coordinate where the token is the coordinate mark, else the token."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What follows a reading that is not known yet, if it neither ends the sequence nor turns it.

    `fed` becomes the next input; `heads` and `suppressed` speak of the reading after that.
    """

    fed: Fed
    heads: Head
    suppressed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """What follows from a reading: the next inputs or a reason to end, and outputs to deliver now."""

    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    reason: FinishReason | None = None


class Skill(Protocol):
    """Turns each reading of one sequence into its next inputs; `heads` and the rest speak of the next reading."""

    @property
    def heads(self) -> Head:
        """What must be read from the next hidden state."""

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Token ids that must not be drawn next."""

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken whatever the temperature."""

    @property
    def ahead(self) -> Ahead | None:
        """What follows the next reading in the usual case; None when that reading ends or turns the sequence."""

    @property
    def output_tokens(self) -> int:
        """How many tokens, coordinates and sizes the model has given so far."""

    def advance(self, reading: Reading) -> Advance:
        """Take a reading in; not called again once it gave a reason to end."""

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End, also in the middle: the outputs still held back, then `Finished`."""
