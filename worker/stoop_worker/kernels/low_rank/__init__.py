"""Low-rank corrections of linear layers for few rows, each of which may have an adapter of its own.

    thin_values(x_BI, a_KIs, numbers_B, rank) -> parts_MSBR
    correct(out_BO, terms, numbers_B)                       in place

reference.py both functions in plain torch
kernel.py    both as kernels
"""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.low_rank import reference
from stoop_worker.kernels.low_rank.reference import Term

__all__ = ["Term", "correct", "thin_values"]


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], numbers_B: Tensor, rank: int) -> Tensor:
    """Return the products of x with the A of each row's adapter; see `reference.thin_values`."""
    if uses_kernel(x_BI):
        from stoop_worker.kernels.low_rank import kernel

        return kernel.thin_values(x_BI, a_KIs, numbers_B, rank)
    return reference.thin_values(x_BI, a_KIs, numbers_B, rank)


def correct(out_BO: Tensor, terms: Sequence[Term], numbers_B: Tensor) -> None:
    """Add the products of thin values with the B of each row's adapter; see `reference.correct`."""
    if uses_kernel(out_BO):
        from stoop_worker.kernels.low_rank import kernel

        kernel.correct(out_BO, terms, numbers_B)
    else:
        reference.correct(out_BO, terms, numbers_B)
