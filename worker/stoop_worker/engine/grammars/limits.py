"""The bounds on the work that a grammar may cost: llguidance counts it, and gives the grammar up beyond them.

With these, the first mask of the worst expressions found takes a tenth of a second, and a later one a hundredth.
Ordinary schemas use less than a hundredth of any bound.
"""

from typing import Final

from llguidance import LLMatcher, LLParserLimits

__all__ = ["MOST_CHARACTERS", "limits", "panic_of", "reason_of"]

MOST_CHARACTERS: Final = 1 << 16
"""The longest schema or regular expression."""

_INITIAL_FUEL: Final = 100_000
_STEP_FUEL: Final = 20_000
_STATES: Final = 50_000
_REASON: Final = 400  # characters of a reason


def limits() -> LLParserLimits:
    """Return the bounds of one grammar."""
    return LLParserLimits(
        initial_lexer_fuel=_INITIAL_FUEL, step_lexer_fuel=_STEP_FUEL, max_lexer_states=_STATES, verbose_errors=False
    )


def reason_of(matcher: LLMatcher) -> str | None:
    """Return why a matcher has given up, on one line; None if it has not."""
    if not matcher.is_error():
        return None
    # the lines after the first ones describe the parser's state, text included
    reason = matcher.get_error().split("<state>")[0].split("<non-verbose/>")[0]
    found = " ".join(reason.split())[:_REASON]
    return "no text matches it" if found.startswith("NoExtension") else found or "unknown reason"


def panic_of(error: BaseException) -> str:
    """Return the reason that a panic of llguidance gives; raise any other error again.

    A panic is no `Exception`, and its type cannot be imported. The matcher must not be used after it.
    """
    if isinstance(error, Exception | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    return f"llguidance failed: {' '.join(str(error).split())[:_REASON]}"
