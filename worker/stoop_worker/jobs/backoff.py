"""The worker's only formula for growing, randomised waits between tries."""

import random
from dataclasses import dataclass

__all__ = ["Backoff", "backoff_seconds"]

_MOST_DOUBLINGS = 30  # a float cannot grow without end


def backoff_seconds(tries: int, *, first: float, longest: float, chance: float) -> float:
    """Return the seconds to wait after this number of earlier waits.

    The wait doubles from `first` to `longest` seconds. `chance`, from 0 to 1, draws it from its upper half, so that
    callers that failed together do not come back together.
    """
    wait = min(longest, first * 2.0 ** min(tries, _MOST_DOUBLINGS))
    return wait * (1 + chance) / 2


@dataclass(slots=True)
class Backoff:
    """Counts the waits of one caller, which double from `first` to `longest` seconds."""

    first: float = 0.05
    longest: float = 5.0
    tries: int = 0

    def next(self) -> float:
        """Return the seconds to wait now. The next wait is about twice as long."""
        seconds = backoff_seconds(self.tries, first=self.first, longest=self.longest, chance=random.random())
        self.tries += 1
        return seconds

    def reset(self) -> None:
        """Begin with the shortest wait again."""
        self.tries = 0
