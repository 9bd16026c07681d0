"""One text on its way through a grammar."""

from typing import NamedTuple

from llguidance import LLMatcher

from stoop_worker.engine.grammars.limits import reason_of
from stoop_worker.engine.request import Output, Refusal, Refused

__all__ = ["Constraint", "ends_text"]


class _Followed(NamedTuple):
    """Whether another token can follow the last one, and why the matcher has given up, if it has."""

    goes_on: bool
    reason: str | None


class Constraint:
    """Follows the tokens of one text; `matcher` computes the ids that may come next."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher
        self._followed: _Followed | None = None  # the last token, if tokens are followed before they are taken

    def follow(self, token: int) -> None:
        """Follow a token that will be taken later, so that a thread can compute the mask after it meanwhile.

        Call it for every token of a text or for none. Only that thread uses the matcher until the next token.
        """
        goes_on = self._consume(token)
        self._followed = _Followed(goes_on, reason_of(self.matcher))

    def take(self, token: int) -> bool:
        """Follow the next token, unless that was done; return whether another can follow.

        None can if the text is complete, if a bound on the grammar's work is reached, or if the grammar does not allow
        the token.
        """
        return self._consume(token) if self._followed is None else self._followed.goes_on

    def ending(self, finished: Output) -> Output:
        """Return the last output of the text: `finished`, or a refusal if the constraint is broken."""
        reason = reason_of(self.matcher) if self._followed is None else self._followed.reason
        if reason is None:
            return finished
        message = f"the text cannot follow its grammar any further: {reason}. Make the schema or the regex simpler"
        return Refused(finished.id, Refusal.INVALID_ARGUMENT, message)

    def _consume(self, token: int) -> bool:
        return bool(self.matcher.consume_token(token)) and not self.matcher.is_stopped()


def ends_text(constraint: Constraint | None, token: int) -> bool:
    """Take a token of a text; return True if the text's constraint allows none to follow."""
    return constraint is not None and not constraint.take(token)
