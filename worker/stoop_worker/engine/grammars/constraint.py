"""The progress of one text through a grammar."""

from llguidance import LLMatcher

from stoop_worker.engine.grammars.limits import reason_of
from stoop_worker.engine.request import Output, Refusal, Refused

__all__ = ["Constraint", "ends_text"]


class Constraint:
    """Follows the tokens of one text; `matcher` computes the ids that may come next."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher

    def take(self, token: int) -> bool:
        """Follow the next token; return whether another can follow.

        No token can if the text is complete, if a bound on the grammar's work is reached, or if the grammar does not
        allow the token.
        """
        return self.matcher.consume_token(token) and not self.matcher.is_stopped()

    def ending(self, finished: Output) -> Output:
        """Return the last output of the text: `finished`, or a refusal if the constraint is broken."""
        reason = reason_of(self.matcher)
        if reason is None:
            return finished
        message = f"the text cannot follow its grammar any further: {reason}. Make the schema or the regex simpler"
        return Refused(finished.id, Refusal.INVALID_ARGUMENT, message)


def ends_text(constraint: Constraint | None, token: int) -> bool:
    """Take a token of a text; return True if the text's constraint allows none to follow."""
    return constraint is not None and not constraint.take(token)
