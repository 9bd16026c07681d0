"""Matrices for the tests of kernels."""

import torch
from torch import Tensor

__all__ = ["within"]


def within(rows: int, columns: int, dtype: torch.dtype, margin: int = 16) -> Tensor:
    """Return a random matrix with NaNs around it, which no kernel may read."""
    whole = torch.full((rows + 2, columns + 2 * margin), torch.nan, dtype=dtype)
    part = whole[1:-1, margin:-margin]
    part.copy_(torch.randn(rows, columns))
    return part
