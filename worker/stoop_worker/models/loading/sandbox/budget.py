"""The budget of a template, in characters: the text that it makes and the values that it looks at are charged to it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from jinja2.exceptions import SecurityError

__all__ = [
    "ROUND_COST",
    "TooMuchWork",
    "budget",
    "each",
    "look_at",
    "look_in",
    "measure",
    "size_of",
    "spend",
    "text_of",
]

ROUND_COST: Final = 20
"""The cost of a round of a loop, and of looking at a value."""

_READ_AT_ONCE: Final = 8  # characters: a text is compared and searched much faster than it is made

_left: ContextVar[list[int]] = ContextVar("left")


class TooMuchWork(SecurityError):
    """The template made more than its budget allows."""


@contextmanager
def budget(characters: int) -> Iterator[None]:
    """Bound the output of the templates in this block, with all intermediate values, in characters."""
    token = _left.set([characters])
    try:
        yield
    finally:
        _left.reset(token)


def spend(amount: int) -> None:
    """Charge an amount; raises `TooMuchWork` when nothing is left."""
    left = _left.get()
    left[0] -= amount
    if left[0] < 0:
        raise TooMuchWork("the model's chat template does not finish, or makes too long a text")


def size_of(value: Any) -> int:
    """Return the number of a value's characters or parts, 0 for a value without any."""
    return len(value) if isinstance(value, str | list | tuple | dict | range) else 0


def measure(value: Any) -> None:
    """Pay for a value's text; a part that occurs many times in it counts each time."""
    spend(ROUND_COST + size_of(value))
    if isinstance(value, dict):
        for key, part in value.items():
            measure(key)
            measure(part)
    elif isinstance(value, list | tuple):
        for part in value:
            measure(part)


def look_at(value: Any) -> Any:
    """Pay for a comparison or a hash of a value, which visits its parts as `measure` does; return the value."""
    if isinstance(value, str):
        spend(ROUND_COST + len(value) // _READ_AT_ONCE)
    else:
        measure(value)
    return value


def look_in(container: Any) -> Any:
    """Pay for a search in a container, and return the container. A dict is not searched: only its key is looked at."""
    return container if isinstance(container, dict) else look_at(container)


def each(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values, and pay for each."""
    for value in values:
        spend(ROUND_COST)
        yield value


def text_of(value: Any) -> str:
    """Return the text of any value, and pay for it."""
    measure(value)
    return str(value)
