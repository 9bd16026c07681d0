"""The positions of a sequence's inputs, as its family counts them; keys are kept in the order of their index."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["INDEX", "Positions"]

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """Index i of the prompt has position `prompt[i]`, and any later index has i + `delta`, on every axis.

    `prompt` is (n,) int64, or (n, axes) if a position has several axes. Without `prompt`, which requires a single axis,
    every index has position i + `delta`.
    """

    prompt: _Longs | None = None
    delta: int = 0

    def at(self, start: int, end: int) -> _Longs:
        """Return the positions of the indices [start, end): (end - start,), or (end - start, axes)."""
        if self.prompt is None:
            return np.arange(start, end) + self.delta
        generated = np.arange(max(start, len(self.prompt)), end) + self.delta
        if self.prompt.ndim == 2:
            generated = np.repeat(generated[:, None], self.prompt.shape[1], axis=1)
        return np.concatenate((self.prompt[start:end], generated))


INDEX = Positions()
"""Every index is its own position."""
