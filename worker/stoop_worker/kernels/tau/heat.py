"""The values from which every head's temperature follows. T tokens, H heads, X = 2 H, S parts of a sum."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Heat"]


@dataclass(frozen=True, slots=True)
class Heat:
    """`parts_STX` add up to the argument of tanh, of q's heads, then of v's; float32.

    `alpha_H` is the pace of positions. `rounded_positions` computes their term in bfloat16.
    """

    parts_STX: Tensor
    alpha_H: Tensor
    rounded_positions: bool = False
