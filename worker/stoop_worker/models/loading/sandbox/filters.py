"""The filters and tests of templates: those of transformers' environment, each charged to the budget."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, Final

from jinja2.exceptions import SecurityError
from jinja2.filters import do_indent, do_round

from stoop_worker.models.loading.sandbox.budget import ROUND_COST, each, look_at, measure, size_of, spend, text_of

__all__ = ["join", "paid_filters", "paid_tests", "replace"]

_SHALLOW: Final = frozenset(
    (
        *("bool", "count", "d", "default", "first", "items", "last", "length", "list", "map", "reject", "rejectattr"),
        *("reverse", "select", "selectattr"),
    )
)
"""Filters that look at no part of their values."""

_DEEP: Final = frozenset(
    (
        *("abs", "capitalize", "dictsort", "e", "escape", "float", "groupby", "indent", "int", "join", "lower", "max"),
        *("min", "replace", "round", "safe", "sort", "string", "sum", "title", "tojson", "trim", "truncate", "unique"),
        *("upper", "wordcount"),
    )
)
_SHALLOW_TESTS: Final = frozenset(
    (
        *("boolean", "callable", "defined", "escaped", "false", "filter", "float", "integer", "iterable", "mapping"),
        *("none", "number", "sameas", "sequence", "string", "test", "true", "undefined"),
    )
)
_NUMBER_TESTS: Final = frozenset(("divisibleby", "even", "odd"))  # a text's % would format it
_WIDEST: Final = 16  # characters of an indentation, and of a separator
_MOST_DIGITS: Final = 16


def paid_filters(known: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return the filters that templates may use; `known` are jinja2's."""
    own = {"tojson": _to_json, "string": text_of, "replace": replace, "join": join}
    own |= {"indent": _indent, "round": _round, "sum": _sum}
    return {
        name: _paid(own.get(name, known.get(name)), deep=name in _DEEP)
        for name in sorted(_SHALLOW | _DEEP)
        if name in own or name in known
    }


def paid_tests(known: Mapping[str, Any]) -> dict[str, Callable[..., Any]]:
    """Return the tests that templates may use; `known` are jinja2's."""
    return {
        name: test if name in _SHALLOW_TESTS else _looking(test, numbers=name in _NUMBER_TESTS)
        for name, test in known.items()
    }


def _paid(made_by: Any, *, deep: bool) -> Callable[..., Any]:
    @wraps(made_by)  # also copies jinja2's marks of what it passes
    def filtered(*args: Any, **kwargs: Any) -> Any:
        spend(ROUND_COST)
        if deep:
            args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        for value in (*args, *kwargs.values()):
            if deep:
                measure(value)
            else:
                spend(size_of(value))
        made = made_by(*args, **kwargs)
        spend(size_of(made))
        return each(made) if isinstance(made, Iterator) else made

    return filtered


def _looking(test: Callable[..., Any], *, numbers: bool) -> Callable[..., Any]:
    @wraps(test)
    def tested(*args: Any) -> Any:
        if numbers and not all(isinstance(value, int | float) for value in args):
            raise SecurityError("a chat template may divide only numbers")
        return test(*map(look_at, args))

    return tested


def replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Replace parts of a text, and pay for the new ones before they are made."""
    text, old, new = str(text), str(old), str(new)
    found = text.count(old)
    spend((found if count is None or count < 0 else min(count, found)) * len(new))
    made: str = text.replace(old, new, -1 if count is None else count)
    return made


def join(values: Any, between: str = "", attribute: Any = None) -> str:
    """Join the texts of values, and pay for them before they are joined."""
    if attribute is not None:
        raise SecurityError("a chat template may join values, but not attributes")
    found = list(values)
    spend(len(found) * (1 + len(between)))
    return between.join(map(text_of, found))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike jinja2's own filter it escapes nothing for HTML, as transformers' does not."""
    for part in (indent, *(separators or ())):
        _check_width(part)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    _check_width(width)
    spend(_WIDEST * (1 + str(text).count("\n")))
    return do_indent(text, width, first, blank)


def _check_width(given: int | str | None) -> None:
    if (len(given) if isinstance(given, str) else given or 0) > _WIDEST:
        raise SecurityError(f"a chat template may indent and separate by at most {_WIDEST} characters")


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if abs(precision) > _MOST_DIGITS:
        raise SecurityError(f"a chat template may round to at most {_MOST_DIGITS} digits")
    return do_round(value, precision, method)


def _sum(values: Any, attribute: Any = None, start: Any = 0) -> Any:
    if attribute is not None or not isinstance(start, int | float):
        raise SecurityError("a chat template may add numbers alone")
    return sum(values, start)
