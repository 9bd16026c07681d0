"""Compiles grammars for the tokens of one model, and keeps those used last."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final

from llguidance import LLMatcher, LLTokenizer

from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.limits import MOST_CHARACTERS, limits, reason_of
from stoop_worker.engine.grammars.trial import Trial, TrialUnavailable
from stoop_worker.engine.request import Grammar, RequestInvalid

__all__ = ["Grammars"]

_KEPT: Final = 64
_WHITESPACE: Final = r"[ \t]?|\n[ \t]{0,32}"
"""The longest space between two parts of JSON: models left free are known to write spaces until their limit."""


class Grammars:
    """Starts constraints for a model with the tokens of a tokenizer.json; any thread may do so.

    `size` is the model's number of ids. The ids `ends` may come only where a text is complete. With a tokenizer whose
    tokens are not known as bytes, every grammar is refused.
    """

    def __init__(self, document: str, *, size: int, ends: Sequence[int]) -> None:
        self._fault: str | None = None
        try:
            self._tokens = LLTokenizer(document, n_vocab=size, eos_token=list(ends))
        except ValueError as error:  # the model itself runs
            self._fault = f"this model's tokenizer gives answers no form: {error}"
        self._trial = Trial()
        self._lock = Lock()  # guards the kept grammars
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._refused: OrderedDict[Grammar, str] = OrderedDict()

    def start(self, grammar: Grammar | None) -> Constraint | None:
        """Begin a text that follows a grammar, if there is one; raises `RequestInvalid` if it does not compile."""
        if grammar is None:
            return None
        if self._fault is not None:
            raise RequestInvalid(self._fault)
        with self._lock:
            matcher, refusal = self._compiled.get(grammar), self._refused.get(grammar)
        if matcher is None and refusal is None:
            matcher, refusal = self._compile(grammar)
            self._keep(grammar, matcher, refusal)
        if matcher is None:
            raise RequestInvalid(f"the {_name(grammar)} cannot be used: {refusal}")
        with self._lock:
            if grammar in self._compiled:
                self._compiled.move_to_end(grammar)
            return Constraint(matcher.deep_copy())

    def _compile(self, grammar: Grammar) -> tuple[LLMatcher | None, str | None]:
        if len(grammar.schema or grammar.regex or "") > MOST_CHARACTERS:
            return None, f"it is longer than {MOST_CHARACTERS} characters"
        try:
            source = _source(grammar)
        except ValueError as error:
            return None, str(error)
        try:
            refusal = self._trial.refusal(source)
        except TrialUnavailable as error:  # spoils this request alone; the next one with this grammar tries again
            raise RequestInvalid(f"this worker cannot try the {_name(grammar)} now: {error}") from error
        if refusal is not None:
            return None, refusal
        matcher = LLMatcher(self._tokens, source, log_level=0, limits=limits())
        if not matcher.is_error():
            matcher.compute_bitmask()  # later ones are quicker, because matchers of one grammar share their tables
        refusal = reason_of(matcher)
        return (matcher, None) if refusal is None else (None, refusal)

    def _keep(self, grammar: Grammar, matcher: LLMatcher | None, refusal: str | None) -> None:
        with self._lock:
            if matcher is not None:
                self._compiled[grammar] = matcher
            else:
                self._refused[grammar] = refusal or ""
            for kept in (self._compiled, self._refused):
                while len(kept) > _KEPT:
                    kept.popitem(last=False)


def _source(grammar: Grammar) -> str:
    """Return a grammar in llguidance's form; raises ValueError."""
    if grammar.regex is not None:
        return LLMatcher.grammar_from_regex(grammar.regex)
    return LLMatcher.grammar_from_json_schema(
        grammar.schema or "{}", overrides={"whitespace_flexible": True, "whitespace_pattern": _WHITESPACE}
    )


def _name(grammar: Grammar) -> str:
    return "JSON schema" if grammar.regex is None else "regular expression"
