"""Compiles grammars for the tokens of one model, and keeps those used last."""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import LifoQueue
from threading import Lock
from time import perf_counter
from typing import Final, TypeVar

from llguidance import LLMatcher, LLTokenizer

from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.free_strings import free_strings
from stoop_worker.engine.grammars.json_tokens import without_other_tokens
from stoop_worker.engine.grammars.limits import MOST_CHARACTERS, limits, panic_of, reason_of
from stoop_worker.engine.grammars.states import States, Widths
from stoop_worker.engine.grammars.trial import Trial, TrialUnavailable
from stoop_worker.engine.request import Grammar, RequestInvalid

__all__ = ["COMPILERS", "Grammars"]

COMPILERS: Final = 2
"""The number of new grammars that compile at once."""

_KEPT: Final = 64
_GROUPS: Final = 4
"""The compiled copies of a grammar: texts that share one wait for each other's masks."""

_QUICK_SECONDS: Final = 0.1
"""A grammar that takes longer to compile has one copy, because its first text waits until all are compiled."""

_WHITESPACE: Final = r"[ \t]?|\n[ \t]{0,32}"
"""The longest space between two parts of JSON: models left free are known to write spaces until their limit."""

_PIECES: Final = (
    *(rf'[^"\\\x00-\x1F\x7F]{{1,{most}}}' for most in (1, 2, 3, 5, 8, 12, 20, 40, 128)),
    r'[^"\\\x00-\x1F\x7F]+',
)
"""Sets of tokens that a mask takes or leaves as a whole; the short ones serve strings close to their `maxLength`."""


_Kept = TypeVar("_Kept")
_Compile = Callable[[LLTokenizer, str], LLMatcher]


class _Compiled:
    """A compiled grammar: a matcher for each group of texts, and the states of texts if they have names."""

    def __init__(self, matchers: Sequence[LLMatcher], states: States | None) -> None:
        self._groups = deque(enumerate(matchers))  # the next one first
        self._states = states

    def start(self) -> Constraint:
        """Begin a text."""
        group, matcher = self._groups[0]
        self._groups.rotate(-1)
        return Constraint(matcher.deep_copy(), group, self._states)


class Grammars:
    """Starts constraints for a model with the tokens of a tokenizer.json; any thread may do so.

    `document` returns the contents of the file, which is read with the first schema, or earlier by `read_vocabulary`,
    and with the first regular expression: that takes seconds for a large vocabulary. `size` is the model's number of
    ids. The ids `ends` may come only where a text is complete. With a tokenizer whose tokens are not known as bytes,
    every grammar is refused. `compiles` makes the matcher of a grammar in llguidance's form.
    """

    def __init__(
        self, document: Callable[[], str], *, size: int, ends: Sequence[int], compiles: _Compile | None = None
    ) -> None:
        self._read = partial(_read, document, size, list(ends))
        self._matcher = compiles or _matcher
        self._reading = Lock()  # guards the vocabularies
        self._vocabularies: dict[bool, LLTokenizer | str] = {}  # by whether for JSON alone; or why there is none
        self._widths: Widths | None = None
        self._trials: LifoQueue[Trial] = LifoQueue()
        for _ in range(COMPILERS):
            self._trials.put(Trial())
        self._lock = Lock()  # guards the kept grammars
        self._compiled: OrderedDict[Grammar, _Compiled] = OrderedDict()
        self._refused: OrderedDict[Grammar, str] = OrderedDict()

    def knows(self, grammar: Grammar | None) -> bool:
        """Return whether `start` would return at once, without compiling."""
        with self._lock:
            return grammar is None or grammar in self._compiled or grammar in self._refused

    def start(self, grammar: Grammar | None) -> Constraint | None:
        """Begin a text that follows a grammar, if there is one; raises `RequestInvalid` if it does not compile.

        A grammar that is not known yet can take a second, and longer while others compile.
        """
        if grammar is None:
            return None
        with self._lock:
            compiled, refusal = _used(self._compiled, grammar), _used(self._refused, grammar)
        if compiled is None and refusal is None:
            try:
                compiled, refusal = self._compile(grammar)
            except BaseException as error:
                refusal = panic_of(error)
            self._keep(grammar, compiled, refusal)
        if compiled is None:
            raise _unusable(grammar, refusal)
        try:
            with self._lock:
                return compiled.start()
        except BaseException as error:
            with self._lock:  # copies share the tables that the panic may have left damaged
                self._compiled.pop(grammar, None)
            raise _unusable(grammar, panic_of(error)) from None

    def read_vocabulary(self) -> None:
        """Read the vocabulary for schemas now; llguidance holds the interpreter's lock meanwhile."""
        self._vocabulary(json_alone=True)

    def _vocabulary(self, *, json_alone: bool) -> LLTokenizer | str:
        with self._reading:
            if json_alone not in self._vocabularies:
                self._vocabularies[json_alone] = self._read(json_alone)
            return self._vocabularies[json_alone]

    def _tokens(self, *, json_alone: bool) -> LLTokenizer:
        found = self._vocabulary(json_alone=json_alone)
        if isinstance(found, str):
            raise RequestInvalid(
                f"this model cannot follow a schema or a regular expression, because of its tokenizer: {found}"
            )
        return found

    def _compile(self, grammar: Grammar) -> tuple[_Compiled | None, str | None]:
        if len(grammar.schema or grammar.regex or "") > MOST_CHARACTERS:
            return None, f"it is longer than {MOST_CHARACTERS} characters: shorten it"
        tokens = self._tokens(json_alone=grammar.regex is None)
        try:
            source = _source(grammar)
        except ValueError as error:
            return None, str(error)
        refusal = self._try(grammar, source)
        if refusal is not None:
            return None, refusal
        started = perf_counter()
        matchers = [self._matcher(tokens, source)]
        if perf_counter() - started < _QUICK_SECONDS:
            matchers += [self._matcher(tokens, source) for _ in range(1, _GROUPS)]
        refusal = reason_of(matchers[0])
        return (_Compiled(matchers, self._states(grammar, tokens)), None) if refusal is None else (None, refusal)

    def _states(self, grammar: Grammar, tokens: LLTokenizer) -> States | None:
        free = None if grammar.regex is not None else free_strings(grammar.schema or "{}")
        if free is None:
            return None
        if self._widths is None:
            self._widths = Widths(lambda token: tokens.decode_bytes([token]))
        return States(free, self._widths)

    def _try(self, grammar: Grammar, source: str) -> str | None:
        """Return why a grammar does not compile, as the next free process found; None if it does."""
        trial = self._trials.get()
        try:
            return trial.refusal(source)
        except TrialUnavailable as error:  # spoils this request alone; the next one with this grammar tries again
            raise RequestInvalid(f"this worker cannot try the {_name(grammar)} now: {error}") from error
        finally:
            self._trials.put(trial)

    def _keep(self, grammar: Grammar, compiled: _Compiled | None, refusal: str | None) -> None:
        with self._lock:
            if compiled is not None:
                self._compiled[grammar] = compiled
            else:
                self._refused[grammar] = refusal or ""
            for kept in (self._compiled, self._refused):
                while len(kept) > _KEPT:
                    kept.popitem(last=False)


def _matcher(tokens: LLTokenizer, source: str) -> LLMatcher:
    """Compile a grammar; texts with copies of this matcher share its tables, and its lock."""
    matcher = LLMatcher(tokens, source, log_level=0, limits=limits())
    if not matcher.is_error():
        matcher.compute_bitmask()  # later ones are quicker, because copies share the tables
    return matcher


def _read(document: Callable[[], str], size: int, ends: list[int], json_alone: bool) -> LLTokenizer | str:
    """Return the vocabulary, or the reason that there is none."""
    try:
        tokens = without_other_tokens(document()) if json_alone else document()
        return LLTokenizer(tokens, n_vocab=size, eos_token=ends, slices=list(_PIECES))
    except BaseException as error:  # a panic of the library too: the model itself runs
        return str(error)


def _used(kept: OrderedDict[Grammar, _Kept], grammar: Grammar) -> _Kept | None:
    """Return the value kept for a grammar, and note that it was used last."""
    if grammar in kept:
        kept.move_to_end(grammar)
    return kept.get(grammar)


def _source(grammar: Grammar) -> str:
    """Return a grammar in llguidance's form; raises ValueError."""
    if grammar.regex is not None:
        return LLMatcher.grammar_from_regex(grammar.regex)
    return LLMatcher.grammar_from_json_schema(
        grammar.schema or "{}", overrides={"whitespace_flexible": True, "whitespace_pattern": _WHITESPACE}
    )


def _unusable(grammar: Grammar, refusal: str | None) -> RequestInvalid:
    return RequestInvalid(f"the {_name(grammar)} cannot be used: {refusal}")


def _name(grammar: Grammar) -> str:
    return "JSON schema" if grammar.regex is None else "regular expression"
