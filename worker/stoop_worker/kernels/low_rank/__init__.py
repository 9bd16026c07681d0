"""Low-rank corrections of linear layers for few rows, each of which may have an adapter of its own.

    group_rows(numbers_B, count) -> Groups                 once for all layers
    thin_values(x_BI, a_KIs, groups, rank) -> parts_MSBR
    correct(out_BO, terms, groups)                         in place
    correction(terms, groups) -> out_BO

reference.py all functions in plain torch
kernel.py    all as kernels

The first kernel after a `branch` or a `join` waits for two kernels: launch it `plainly`.
"""

from collections.abc import Sequence

from torch import Tensor

from stoop_worker.kernels.backend import uses_kernel
from stoop_worker.kernels.low_rank import reference
from stoop_worker.kernels.low_rank.reference import Groups, Term

__all__ = ["Groups", "Term", "correct", "correction", "group_rows", "thin_values"]


def group_rows(numbers_B: Tensor, count: int, *, like: Tensor) -> Groups:
    """Group rows by the number of their adapter, for rows such as `like`; see `reference.group_rows`."""
    if uses_kernel(like):
        from stoop_worker.kernels.low_rank import kernel

        return kernel.group_rows(numbers_B, count)
    return reference.group_rows(numbers_B, count)


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], groups: Groups, rank: int, *, plainly: bool = False) -> Tensor:
    """Return the products of x with the A of each row's adapter; see `reference.thin_values`."""
    if uses_kernel(x_BI):
        from stoop_worker.kernels.low_rank import kernel

        return kernel.thin_values(x_BI, a_KIs, groups, rank, plainly=plainly)
    return reference.thin_values(x_BI, a_KIs, groups, rank)


def correct(out_BO: Tensor, terms: Sequence[Term], groups: Groups, *, plainly: bool = False) -> None:
    """Add the products of thin values with the B of each row's adapter; see `reference.correct`."""
    if uses_kernel(out_BO):
        from stoop_worker.kernels.low_rank import kernel

        kernel.correct(out_BO, terms, groups, plainly=plainly)
    else:
        reference.correct(out_BO, terms, groups)


def correction(terms: Sequence[Term], groups: Groups, *, plainly: bool = False) -> Tensor:
    """Return the sum of the products of thin values with the B of each row's adapter; see `reference.correction`."""
    if uses_kernel(terms[0].b_KO):
        from stoop_worker.kernels.low_rank import kernel

        return kernel.correction(terms, groups, plainly=plainly)
    return reference.correction(terms, groups)
