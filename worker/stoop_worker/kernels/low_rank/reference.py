"""Low-rank corrections. The correction of row b is (x A^T) B, with the columns of its adapter, and no further scale.

All adapters lie side by side: an adapter has the columns from `rank` times its number on. Number 0 means no adapter.
B rows, I in, O out, K columns of all adapters, R columns of one, M layers that read the same rows, S parts of a sum.
G tiles of up to 16 rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Groups", "Term", "correct", "correction", "group_rows", "thin_values"]


class Groups(NamedTuple):
    """The number of each row's adapter, and for kernels the rows in tiles of one number each.

    `tiles_G` are the numbers of the tiles and `rows_GT` their rows, int32. A place without a row holds -1.
    """

    numbers_B: Tensor
    tiles_G: Tensor | None = None
    rows_GT: Tensor | None = None


class Term(NamedTuple):
    """One layer's correction: its thin values, B, and the first of the output's columns that it corrects."""

    parts_SBR: Tensor
    b_KO: Tensor
    start: int = 0


def group_rows(numbers_B: Tensor, count: int) -> Groups:
    """Group rows by the number of their adapter; all numbers are less than `count`."""
    return Groups(numbers_B)


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], groups: Groups, rank: int) -> Tensor:
    """Return parts_MSBR, at least float32, whose sum over S is x A^T for each layer's A; rows of number 0 hold zeros.

    A kernel leaves these rows unwritten.
    """
    wide, numbers_B = torch.promote_types(x_BI.dtype, torch.float32), groups.numbers_B
    own_BI = torch.where(numbers_B[:, None] > 0, x_BI, 0).to(wide)
    return torch.stack([torch.einsum("bi,bri->br", own_BI, _own(a_KI, numbers_B, rank).to(wide)) for a_KI in a_KIs])[
        :, None
    ]


def correct(out_BO: Tensor, terms: Sequence[Term], groups: Groups) -> None:
    """Add the terms to rows of the output, in at least float32; each sum is rounded to the output's dtype.

    A kernel rounds thin values to the dtype of B.
    """
    for parts_SBR, b_KO, start in terms:
        thin_BR = parts_SBR.sum(dim=0)
        own_BRO = _own(b_KO, groups.numbers_B, thin_BR.shape[1]).to(thin_BR.dtype)
        columns_BO = out_BO[:, start : start + b_KO.shape[1]]
        added_BO = torch.where(groups.numbers_B[:, None] > 0, torch.einsum("br,bro->bo", thin_BR, own_BRO), 0)
        columns_BO.copy_(columns_BO.to(thin_BR.dtype) + added_BO)


def correction(terms: Sequence[Term], groups: Groups) -> Tensor:
    """Return the sum of terms with the same columns, (B, O) in at least float32; rows of number 0 are zeros."""
    first = terms[0]
    out_BO = first.parts_SBR.new_zeros((first.parts_SBR.shape[1], first.b_KO.shape[1]))
    correct(out_BO, terms, groups)
    return out_BO


def _own(all_KX: Tensor, numbers_B: Tensor, rank: int) -> Tensor:
    """Return the columns of each row's adapter, (B, R, X)."""
    return all_KX.view(-1, rank, all_KX.shape[1])[numbers_B]
