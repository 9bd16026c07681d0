"""Limits on the tokens that rows may choose. Letters as in `reference`."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the choice of the B rows of a batch; None is no limit.

    `suppressed_B2` (int32): ids that a row may not choose; -1 for none.
    `top_ks_B` (int32): a row chooses among its k likeliest ids, including ties with the last of them; 0 for all ids.
    `masks_NW` (int32): N sets of ids as bits. A row with this mask may choose id v if bit v % 32 of word v // 32 is
    set. W is at least V / 32, rounded up. `mask_rows_B` (int32): the mask of each row; -1 for none. The two are given
    together. The masks stay on the device from step to step.
    """

    suppressed_B2: Tensor | None = None
    top_ks_B: Tensor | None = None
    masks_NW: Tensor | None = None
    mask_rows_B: Tensor | None = None
