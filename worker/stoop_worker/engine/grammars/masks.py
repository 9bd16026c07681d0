"""The ids that may come next, as bits. N texts, W words of 32 ids."""

from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Final

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor

from stoop_worker.engine.grammars.constraint import Constraint
from stoop_worker.engine.grammars.limits import panic_of

__all__ = ["Choice", "Masks", "Way"]

_FEW: Final = 4  # threads; the masks of a step with JSON take less than a millisecond in all
_MANY: Final = 8  # masks; for fewer, waking threads may cost more than they save
_REMEMBERED: Final = 5  # times of each way
_RETRIED: Final = 512  # fills between two trials of another way, which also makes the next fills slower

Way = Callable[[Sequence[Constraint], npt.NDArray[np.int32]], None]
"""Writes the masks of several texts."""


class Masks:
    """Computes the masks of several texts on one, a few or many threads, whichever was fastest recently.

    A mask takes 10 us by a schema and 400 us by some expressions; the time to wake threads depends on the machine.
    `ways` compute several masks; by default on one thread, and on few or many.
    """

    def __init__(self, ways: Sequence[Way] = ()) -> None:
        self._ways = ways or (_compute_each, _Parallel(_FEW), _Parallel())
        self._choices = [Choice(len(self._ways)) for _ in range(2)]  # for few masks, and for many

    def fill(self, constraints: Sequence[Constraint], masks_NW: npt.NDArray[np.int32]) -> None:
        """Write the mask of each text to its row; a broken constraint allows only the ids that end a text.

        After a panic of its matcher it allows every id, and ends the text at whichever comes next.
        """
        assert masks_NW.flags.c_contiguous and len(masks_NW) >= len(constraints)
        if len(constraints) <= 1:
            _compute_each(constraints, masks_NW)
            return
        choice = self._choices[len(constraints) >= _MANY]
        way, started = choice.next(), perf_counter()
        try:
            self._ways[way](constraints, masks_NW)
        except BaseException as error:
            panic_of(error)
            _compute_each(constraints, masks_NW)  # finds the matcher that panicked
        choice.note(way, (perf_counter() - started) / len(constraints))


class Choice:
    """Chooses among some ways by their times."""

    def __init__(self, ways: int) -> None:
        self._seconds = [deque[float](maxlen=_REMEMBERED) for _ in range(ways)]  # of one mask
        self._fills = 0

    def next(self) -> int:
        """Return the number of the way to take now."""
        self._fills += 1
        ways = range(len(self._seconds))
        if self._fills <= _REMEMBERED * len(ways):
            return self._fills % len(ways)
        again, rest = divmod(self._fills, _RETRIED)
        return min(ways, key=lambda way: median(self._seconds[way])) if rest else again % len(ways)

    def note(self, way: int, seconds: float) -> None:
        """Note how long a mask took."""
        self._seconds[way].append(seconds)


class _Parallel:
    """Computes masks in threads, which start with the first; by default in most cores' worth of them."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._executor: LLExecutor | None = None

    def __call__(self, constraints: Sequence[Constraint], masks_NW: npt.NDArray[np.int32]) -> None:
        if self._executor is None:
            self._executor = LLExecutor(self._threads)
        by_group = sorted(range(len(constraints)), key=lambda row: constraints[row].group)  # neighbours share a thread
        rows = [(constraints[row].matcher, row) for row in by_group]
        self._executor.unsafe_compute_mask_ptr(rows, masks_NW.ctypes.data, masks_NW[0].nbytes, len(masks_NW))


def _compute_each(constraints: Sequence[Constraint], masks_NW: npt.NDArray[np.int32]) -> None:
    start, size = masks_NW.ctypes.data, masks_NW.strides[0]
    for row, constraint in enumerate(constraints):
        if not constraint.write_mask(start + row * size, size):
            masks_NW[row] = -1
