"""The wait before the next try, which doubles with each failure."""

import random

__all__ = ["backoff"]

_MOST_DOUBLINGS = 30


def backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait before the next try. `failures` counts the failures in a row before the last one.

    The wait doubles from `first` up to `longest`, and is drawn at random from its upper half, so that the clients that
    lost the same server do not all return at once.
    """
    wait = min(longest, first * 2.0 ** min(failures, _MOST_DOUBLINGS))
    return random.uniform(wait / 2, wait)
