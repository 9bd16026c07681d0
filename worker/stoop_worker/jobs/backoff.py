"""Doubling, randomised waits between tries."""

import random
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first` to `longest` seconds, each drawn at random from its upper half."""

    first: float = 0.05
    longest: float = 5.0
    tries: int = 0

    def next(self) -> float:
        """Return the seconds to wait now. The next wait is about twice as long."""
        wait = min(self.longest, self.first * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return random.uniform(wait / 2, wait)
