"""Measures the time in parts of a program, in one thread."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

__all__ = ["TimedParts"]


class TimedParts:
    """Nanoseconds by part; a part within another one counts for itself alone.

    The usual `clock` is the thread's own processor time.
    """

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self._clock = clock
        self.spent: defaultdict[str, int] = defaultdict(int)
        self._within: list[str] = []
        self._since = 0

    @contextmanager
    def measuring(self, part: str, owner: type, *methods: str) -> Iterator[None]:
        """Count the time in some methods of a class as this part."""
        with patch.multiple(owner, **{name: self._timed(part, getattr(owner, name)) for name in methods}):
            yield

    def take(self) -> dict[str, int]:
        """Return the time spent since the last call."""
        taken, self.spent = dict(self.spent), defaultdict(int)
        return taken

    def _timed(self, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*arguments: Any, **named: Any) -> Any:
            self._turn()
            self._within.append(part)
            try:
                return method(*arguments, **named)
            finally:
                self._turn()
                self._within.pop()

        return timed

    def _turn(self) -> None:
        """Count the time since the last turn for the part that ran."""
        now = self._clock()
        if self._within:
            self.spent[self._within[-1]] += now - self._since
        self._since = now
