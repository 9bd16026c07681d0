"""Low-rank corrections. The correction of row b is (x A^T) B, with the columns of its adapter, and no further scale.

All adapters lie side by side: an adapter has the columns from `rank` times its number on. Number 0 means no adapter.
B rows, I in, O out, K columns of all adapters, R columns of one, M layers that read the same rows, S parts of a sum.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Term", "correct", "thin_values"]


class Term(NamedTuple):
    """One layer's correction: its thin values, B, and the first of the output's columns that it corrects."""

    parts_SBR: Tensor
    b_KO: Tensor
    start: int = 0


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], numbers_B: Tensor, rank: int) -> Tensor:
    """Return parts_MSBR, at least float32, whose sum over S is x A^T for each layer's A; rows of number 0 hold zeros.

    A kernel leaves these rows unwritten.
    """
    wide = torch.promote_types(x_BI.dtype, torch.float32)
    own_BI = torch.where(numbers_B[:, None] > 0, x_BI, 0).to(wide)
    return torch.stack([torch.einsum("bi,bri->br", own_BI, _own(a_KI, numbers_B, rank).to(wide)) for a_KI in a_KIs])[
        :, None
    ]


def correct(out_BO: Tensor, terms: Sequence[Term], numbers_B: Tensor) -> None:
    """Add the terms to rows of the output, in at least float32; each sum is rounded to the output's dtype."""
    for parts_SBR, b_KO, start in terms:
        thin_BR = parts_SBR.sum(dim=0)
        own_BRO = _own(b_KO, numbers_B, thin_BR.shape[1]).to(thin_BR.dtype)
        columns_BO = out_BO[:, start : start + b_KO.shape[1]]
        added_BO = torch.where(numbers_B[:, None] > 0, torch.einsum("br,bro->bo", thin_BR, own_BRO), 0)
        columns_BO.copy_(columns_BO.to(thin_BR.dtype) + added_BO)


def _own(all_KX: Tensor, numbers_B: Tensor, rank: int) -> Tensor:
    """Return the columns of each row's adapter, (B, R, X)."""
    return all_KX.view(-1, rank, all_KX.shape[1])[numbers_B]
