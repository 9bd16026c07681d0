"""A weight in float8 with a scale for each square block. N rows, C columns, side S of a block."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BlockFp8", "Weight", "dense", "joined", "values_of", "wide"]


class BlockFp8(NamedTuple):
    """The weight values * scales: `values_NC` float8_e4m3fn, and `scales` float32, one for each block.

    They are (N / S, C / S), rounded up, because the last blocks may be partial. `side` is S, a power of two.
    """

    values_NC: Tensor
    scales: Tensor
    side: int

    @property
    def shape(self) -> torch.Size:
        """Rows and columns of the weight."""
        return self.values_NC.shape


Weight = Tensor | BlockFp8
"""The weight of a linear layer, (N, C)."""


def dense(weight: BlockFp8, dtype: torch.dtype) -> Tensor:
    """Return values * scales, computed in at least float32 and rounded to `dtype`."""
    precise = torch.promote_types(dtype, torch.float32)
    rows, columns = weight.shape
    scales = weight.scales.to(precise).repeat_interleave(weight.side, 0)[:rows]
    return (weight.values_NC.to(precise) * scales.repeat_interleave(weight.side, 1)[:, :columns]).to(dtype)


def values_of(weight: Weight) -> Tensor:
    """Return the tensor that a product reads, without any scales."""
    return weight if isinstance(weight, Tensor) else weight.values_NC


def wide(weight: Weight, dtype: torch.dtype) -> Tensor:
    """Return a weight as a tensor of `dtype`, for the references of products."""
    return weight.to(dtype) if isinstance(weight, Tensor) else dense(weight, dtype)


def joined(weights: Sequence[BlockFp8]) -> BlockFp8 | None:
    """Return the weight with the rows of all; None if a block would have rows of two, or blocks differ in size."""
    side = weights[0].side
    if any(weight.side != side or weight.shape[0] % side for weight in weights):
        return None
    values_NC = torch.cat([weight.values_NC.view(torch.uint8) for weight in weights]).view(torch.float8_e4m3fn)
    return BlockFp8(values_NC, torch.cat([weight.scales for weight in weights]), side)
