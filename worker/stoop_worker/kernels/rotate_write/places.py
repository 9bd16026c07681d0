"""The positions and slots of a batch's rows, and the norms of their heads. Letters as in `reference`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.kernels.tau import Heat

__all__ = ["HeadNorms", "Places"]


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of T rows, and the slots for their keys and values.

    `positions` is int64: (T,), or (T, A) if a position has A axes. Then `axis_F` (int32) names the axis of each
    frequency; otherwise it is None. `table_SF2` comes from `rotation_table`. `slots_T` is int64; a slot below 0
    stores nothing. With a `heat`, each head of q and v is scaled by its temperature first.
    """

    positions: Tensor
    table_SF2: Tensor
    slots_T: Tensor
    axis_F: Tensor | None = None
    heat: Heat | None = None

    def rotation(self) -> tuple[Tensor, Tensor]:
        """Return cos_TF and sin_TF of every row."""
        if self.axis_F is None:
            rotations_TF2 = self.table_SF2[self.positions]
        else:
            frequencies_F = torch.arange(self.table_SF2.shape[1], device=self.table_SF2.device)
            rotations_TF2 = self.table_SF2[self.positions[:, self.axis_F.long()], frequencies_F]
        cos_TF, sin_TF = rotations_TF2.unbind(-1)
        return cos_TF, sin_TF


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The RMS norms that are applied to each head of q and k before its rotation."""

    q_D: Tensor
    k_D: Tensor
    epsilon: float
