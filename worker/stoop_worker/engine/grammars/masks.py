"""The ids that may come next, as bits. N texts, W words of 32 ids."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor

from stoop_worker.engine.grammars.constraint import Constraint

__all__ = ["Masks"]


class Masks:
    """Computes masks, those of several texts in parallel."""

    def __init__(self) -> None:
        self._executor: LLExecutor | None = None

    def fill(self, constraints: Sequence[Constraint], masks_NW: npt.NDArray[np.int32]) -> None:
        """Write the mask of each text to its row; in a broken constraint only the ends of a text may come."""
        assert masks_NW.flags.c_contiguous and len(masks_NW) >= len(constraints)
        if len(constraints) == 1:
            row = masks_NW[0]
            constraints[0].matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        elif constraints:
            if self._executor is None:
                self._executor = LLExecutor()
            rows = [(constraint.matcher, row) for row, constraint in enumerate(constraints)]
            self._executor.unsafe_compute_mask_ptr(rows, masks_NW.ctypes.data, masks_NW[0].nbytes, len(masks_NW))
