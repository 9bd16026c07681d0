"""The skill port: it turns head values into the next inputs of one sequence."""

from collections.abc import Sequence
from enum import Flag, auto
from typing import NamedTuple, Protocol

from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.inputs import TOKEN, Input
from stoop_worker.engine.request import FinishReason, Output, Usage

__all__ = ["MOST_SUPPRESSED", "Advance", "Head", "HeadValues", "Lookahead", "Skill"]

MOST_SUPPRESSED = 2
"""The most ids that a skill may suppress at once."""


class Head(Flag):
    """The heads that can be read from one hidden state: a token, and the values of the family's own heads."""

    TOKEN = auto()
    VALUES = auto()


class HeadValues(NamedTuple):
    """The values read from one hidden state; `token` is None and `values` is empty if the skill did not ask for it."""

    token: int | None = None
    values: tuple[float, ...] = ()


class Lookahead(NamedTuple):
    """The assumption of a step that starts before the head values arrive; wrong if they end or redirect the sequence.

    The next input is of this `kind`, one of the family's; `heads`, `suppressed` and `rule` apply after it. The family
    may complete `rule` from the value that is still in the sequence's seat.
    """

    kind: int = TOKEN
    heads: Head = Head.TOKEN
    suppressed: tuple[int, ...] = ()
    rule: tuple[int, ...] = ()


class Advance(NamedTuple):
    """A skill's answer to head values: the next inputs or a reason to end, and outputs to deliver now.

    The inputs are tokens and values; media occur only in prompts.
    """

    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    reason: FinishReason | None = None


class Skill(Protocol):
    """Turns head values into the next inputs of one sequence; its properties describe the next values."""

    @property
    def heads(self) -> Head:
        """The heads to read from the next hidden state."""

    @property
    def suppressed(self) -> tuple[int, ...]:
        """Token ids that must not be sampled next, at most `MOST_SUPPRESSED`."""

    @property
    def rule(self) -> tuple[int, ...]:
        """The facts about the sequence that the family's `read` needs: `spec.rule` numbers, usually none."""

    @property
    def greedy(self) -> bool:
        """True if the skill takes the most likely token at any temperature."""

    @property
    def constraint(self) -> Constraint | None:
        """The grammar that the text follows; None if it follows none, or not yet."""

    @property
    def lookahead(self) -> Lookahead | None:
        """The usual case after the next head values; None if they end or redirect the sequence."""

    @property
    def output_tokens(self) -> int:
        """The number of tokens and values that the model has produced so far."""

    def advance(self, found: HeadValues) -> Advance:
        """Take the next head values; never called again after it returned a reason to end."""

    @property
    def finishes_late(self) -> bool:
        """True if `finish` takes longer than a step; another thread may then call it while other sequences run."""

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End the sequence, even in mid-text; return the outputs still held back, then `Finished`."""
