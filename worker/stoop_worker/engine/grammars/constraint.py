"""The progress of one text through a grammar."""

from llguidance import LLMatcher

from stoop_worker.engine.grammars.limits import reason_of
from stoop_worker.engine.grammars.states import Place, State, States
from stoop_worker.engine.request import Output, Refusal, Refused

__all__ = ["Constraint", "ends_text"]


class Constraint:
    """Follows the tokens of one text.

    A matcher takes tokens only when it is needed: if another text has been in the same state, that state is enough.
    Matchers of one grammar with the same `group` wait for each other, so threads should not share them.
    """

    def __init__(self, matcher: LLMatcher, group: int = 0, states: States | None = None) -> None:
        self._matcher = matcher
        self.group = group
        self._place = None if states is None else Place(states)
        self._late: list[int] = []  # tokens that the matcher has not taken yet
        self.state: State | None = None if self._place is None else self._place.state
        """The state of the text; texts of one grammar in the same state may go on with the same ids. None: no name."""

    @property
    def matcher(self) -> LLMatcher:
        """Computes the ids that may come next."""
        if self._late:
            self._matcher.consume_tokens(self._late)
            self._late = []
        return self._matcher

    @property
    def is_general(self) -> bool:
        """True if the ids that may come next follow from `state` alone.

        Where several next characters are certain, llguidance chooses the tokens for them by the last token too, which
        is not part of a state in a free string.
        """
        if self.state is None:
            return False
        return not self.state.is_free or len(self.matcher.compute_ff_bytes()) <= 1

    @property
    def is_broken(self) -> bool:
        """True if a bound on the grammar's work was reached, or a token was not allowed."""
        return self.matcher.is_error()

    def take(self, token: int) -> bool:
        """Follow the next token; return whether another can follow.

        No token can if the text is complete, if a bound on the grammar's work is reached, or if the grammar does not
        allow the token.
        """
        if self._place is None:
            return _take(self._matcher, token)
        state = self.state = self._place.take(token)
        if state is None:
            return _take(self.matcher, token)
        if state.goes_on:
            self._late.append(token)
            return True
        state.goes_on = _take(self.matcher, token)
        return state.goes_on

    def ending(self, finished: Output) -> Output:
        """Return the last output of the text: `finished`, or a refusal if the constraint is broken."""
        reason = reason_of(self.matcher)
        if reason is None:
            return finished
        message = f"the text cannot follow its grammar any further: {reason}. Make the schema or the regex simpler"
        return Refused(finished.id, Refusal.INVALID_ARGUMENT, message)


def _take(matcher: LLMatcher, token: int) -> bool:
    return matcher.consume_token(token) and not matcher.is_stopped()


def ends_text(constraint: Constraint | None, token: int) -> bool:
    """Take a token of a text; return True if the text's constraint allows none to follow."""
    return constraint is not None and not constraint.take(token)
