"""The chat skill: one token after another, until the model ends its turn or a limit does."""

from collections.abc import Sequence

from stoop_worker.engine.detokenizer import Detokenizer
from stoop_worker.engine.grammars.constraint import Constraint, ends_text
from stoop_worker.engine.inputs import token_input
from stoop_worker.engine.request import Finished, FinishReason, Output, Request, TextDelta, Usage
from stoop_worker.engine.skill import Advance, Head, HeadValues, Lookahead
from stoop_worker.models.loading.tokenizer import Tokenizer

__all__ = ["ChatSkill"]

_ONE_MORE = Lookahead()
_NEW = tuple.__new__  # makes a named tuple twice as fast as its class does


class ChatSkill:
    """Writes until one of the model's `ends`, a stop id, a stop string, or `max_tokens`."""

    heads = Head.TOKEN
    suppressed: tuple[int, ...] = ()
    greedy = False
    rule: tuple[int, ...] = ()
    finishes_late = False

    def __init__(
        self, request: Request, *, ends: Sequence[int], tokenizer: Tokenizer, constraint: Constraint | None = None
    ) -> None:
        sampling = request.sampling
        self._id = request.id
        self._most = sampling.max_tokens
        self._ends = frozenset((*ends, *sampling.stop_ids))
        self._text = Detokenizer(tokenizer, sampling.stop, whole_words=False)
        self.constraint = constraint
        self.output_tokens = 0

    @property
    def lookahead(self) -> Lookahead | None:
        """One more token, or None at the last."""
        return None if self.output_tokens + 1 == self._most else _ONE_MORE

    def advance(self, found: HeadValues) -> Advance:
        """Take the next token."""
        token = found.token
        assert token is not None
        if token in self._ends:
            return Advance(reason=FinishReason.STOP)
        piece = self._text.push(token)
        outputs = (_NEW(TextDelta, (self._id, piece)),) if piece else ()
        self.output_tokens += 1
        if self._text.stopped or ends_text(self.constraint, token):
            return Advance((), outputs, FinishReason.STOP)
        if self.output_tokens == self._most:
            return Advance((), outputs, FinishReason.LENGTH)
        return _NEW(Advance, ((token_input(token),), outputs, None))

    def finish(self, reason: FinishReason, usage: Usage) -> Sequence[Output]:
        """End, even in mid-word."""
        piece = self._text.flush()
        finished = Finished(self._id, reason, usage, text=self._text.text)
        last = finished if self.constraint is None else self.constraint.ending(finished)
        return [TextDelta(self._id, piece), last] if piece else [last]
