"""The progress of one text through a grammar."""

from llguidance import LLMatcher

from stoop_worker.engine.grammars.limits import panic_of, reason_of
from stoop_worker.engine.grammars.states import Place, State, States
from stoop_worker.engine.request import Output, Refusal, Refused

__all__ = ["Constraint", "ends_text"]


class Constraint:
    """Follows the tokens of one text.

    The matcher takes the tokens only when it is needed, because a state that another text has been in tells as much.
    Matchers of one grammar with the same `group` wait for each other, so one thread should compute their masks.
    A panic of the matcher breaks the constraint, which then ends its text.
    """

    def __init__(self, matcher: LLMatcher, group: int = 0, states: States | None = None) -> None:
        self._matcher = matcher
        self.group = group
        self._place = None if states is None else Place(states)
        self._late: list[int] = []  # tokens that the matcher has not taken yet
        self._panic: BaseException | None = None
        self.state: State | None = None if self._place is None else self._place.state
        """The named state of the text, if it has one: texts in the same state may go on with the same ids."""

    @property
    def matcher(self) -> LLMatcher:
        """Computes the ids that may come next; raises its own panic again if it had one."""
        if self._panic is not None:
            raise self._panic
        if self._late:
            self._matcher.consume_tokens(self._late)
            self._late = []
        return self._matcher

    @property
    def is_general(self) -> bool:
        """True if the ids that may come next follow from `state` alone.

        Where several next characters are certain, llguidance chooses the tokens for them by the last token too. In a
        free string, the state does not say which token that is.
        """
        if self.state is None:
            return False
        try:
            return not self.state.is_free or len(self.matcher.compute_ff_bytes()) <= 1
        except BaseException as error:
            return self._break(error)

    @property
    def is_broken(self) -> bool:
        """True if a bound on the grammar's work was reached, a token was not allowed, or the matcher panicked."""
        try:
            return self.matcher.is_error()
        except BaseException as error:
            return not self._break(error)

    def write_mask(self, address: int, size: int) -> bool:
        """Write the ids that may come next, as `size` bytes of bits; return False if the matcher panicked instead."""
        try:
            self.matcher.unsafe_compute_mask_ptr(address, size)
        except BaseException as error:
            return self._break(error)
        return True

    def take(self, token: int) -> bool:
        """Follow the next token; return whether another can follow.

        No token can if the text is complete, if the constraint is broken, or if the grammar does not allow the token.
        """
        if self._panic is not None:
            return False
        try:
            return self._take(token)
        except BaseException as error:
            return self._break(error)

    def _take(self, token: int) -> bool:
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
        try:
            reason = reason_of(self.matcher)
        except BaseException as error:
            reason = panic_of(error)
        if reason is None:
            return finished
        message = f"the text cannot follow its grammar any further: {reason}. Make the schema or the regex simpler"
        return Refused(finished.id, Refusal.INVALID_ARGUMENT, message)

    def _break(self, error: BaseException) -> bool:
        """Keep a panic, and return False; raise any other error again."""
        panic_of(error)
        self._panic = error
        return False


def _take(matcher: LLMatcher, token: int) -> bool:
    return matcher.consume_token(token) and not matcher.is_stopped()


def ends_text(constraint: Constraint | None, token: int) -> bool:
    """Take a token of a text; return True if the text's constraint allows none to follow."""
    return constraint is not None and not constraint.take(token)
