# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Both products of low-rank corrections for few rows: a program takes one row, and reads only its adapter's columns.

Programs are small, so that a warp adds up its own columns. They read the adapters and their numbers before the kernel
ahead has ended. A kernel that was not launched early must therefore lie between the last write of these and every call.
In a decode step this is its first layer norm, which neither starts early nor lets the next kernel start early: the
numbers are written just before it, and adapters before the step. Copies by `contiguous` are launched in the same way.
Letters as in `reference`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.low_rank.reference import Term

__all__ = ["correct", "thin_values"]

_VALUES = 8192  # of A or B that a program reads at a time
_MOST_LAYERS, _MOST_TERMS = 3, 2


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], numbers_B: Tensor, rank: int) -> Tensor:
    """Compute `reference.thin_values` in several parts, for up to three layers."""
    if not 0 < len(a_KIs) <= _MOST_LAYERS:
        raise ValueError(f"there are {len(a_KIs)} layers: give 1 to {_MOST_LAYERS}")
    (count, width), layers = x_BI.shape, len(a_KIs)
    block = triton.next_power_of_2(rank)
    columns = min(_VALUES // block, triton.next_power_of_2(width))
    parts = triton.cdiv(width, columns)
    parts_MSBR = torch.empty((layers, parts, count, rank), dtype=torch.float32, device=x_BI.device)
    if not count:
        return parts_MSBR
    kernel: Any = _thin
    kernel[(parts, count, layers)](
        x_BI,
        *_padded([a_KI.contiguous() for a_KI in a_KIs], _MOST_LAYERS),
        numbers_B.contiguous(),
        parts_MSBR,
        x_BI.stride(0),
        count,
        I=width,
        RANK=rank,
        RANK_BLOCK=block,
        COLUMNS=columns,
        PARTS=parts,
        num_warps=1,
        **early.options(x_BI.device, count),
    )
    return parts_MSBR


def correct(out_BO: Tensor, terms: Sequence[Term], numbers_B: Tensor) -> None:
    """Compute `reference.correct` for up to two terms, which have the same columns or none in common."""
    if not 0 < len(terms) <= _MOST_TERMS:
        raise ValueError(f"there are {len(terms)} terms: give 1 to {_MOST_TERMS}")
    first, last = terms[0], terms[-1]
    parts, count, rank = first.parts_SBR.shape
    summed = len(terms) == 2 and first.start == last.start
    block = triton.next_power_of_2(rank)
    columns = max(32, min(_VALUES // block, 512))
    blocks = [triton.cdiv(term.b_KO.shape[1], columns) for term in ([first] if summed else terms)]
    if not count:
        return
    kernel: Any = _correct
    kernel[(sum(blocks), count)](
        out_BO,
        first.parts_SBR,
        last.parts_SBR,
        first.b_KO.contiguous(),
        last.b_KO.contiguous(),
        numbers_B.contiguous(),
        out_BO.stride(0),
        count,
        FIRST=first.start,
        LAST=last.start,
        FIRST_WIDTH=first.b_KO.shape[1],
        LAST_WIDTH=last.b_KO.shape[1],
        FIRST_BLOCKS=blocks[0],
        FIRST_PARTS=parts,
        LAST_PARTS=len(last.parts_SBR),
        SUMMED=summed,
        RANK=rank,
        RANK_BLOCK=block,
        COLUMNS=columns,
        num_warps=max(1, columns // 256),  # of which each thread takes eight
        **early.options(out_BO.device, count),
    )


def _padded(given: list[Tensor], most: int) -> list[Tensor]:
    return given + [given[-1]] * (most - len(given))


@triton.jit
def _thin(
    x_ptr,
    a0_ptr,
    a1_ptr,
    a2_ptr,
    numbers_ptr,
    parts_ptr,
    x_stride,
    count,
    I: tl.constexpr,  # noqa: E741
    RANK: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    part = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    layer = tl.program_id(2)
    number = tl.load(numbers_ptr + batch)
    a_ptr = a0_ptr
    if layer == 1:
        a_ptr = a1_ptr
    if layer == 2:
        a_ptr = a2_ptr
    rank = tl.arange(0, RANK_BLOCK)
    column = part * COLUMNS + tl.arange(0, COLUMNS)
    a_ptrs = a_ptr + (number * RANK + rank[:, None]) * I + column[None, :]
    there = rank < tl.where(number > 0, RANK, 0)
    a = tl.load(a_ptrs, mask=there[:, None] & (column < I)[None, :], other=0.0)
    early.wait(EARLY)
    if number > 0:
        x = tl.load(x_ptr + batch * x_stride + column, mask=column < I, other=0.0).to(tl.float32)
        thin = tl.sum(a.to(tl.float32) * x[None, :], axis=1)
        place = ((layer * PARTS + part) * count + batch) * RANK + rank
        tl.store(parts_ptr + place, thin, mask=rank < RANK)


@triton.jit
def _correct(
    out_ptr,
    first_parts_ptr,
    last_parts_ptr,
    first_b_ptr,
    last_b_ptr,
    numbers_ptr,
    out_stride,
    count,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
    FIRST_WIDTH: tl.constexpr,
    LAST_WIDTH: tl.constexpr,
    FIRST_BLOCKS: tl.constexpr,
    FIRST_PARTS: tl.constexpr,
    LAST_PARTS: tl.constexpr,
    SUMMED: tl.constexpr,
    RANK: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    block = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    number = tl.load(numbers_ptr + batch)
    within = tl.arange(0, COLUMNS)
    if number == 0:
        early.wait(EARLY)
    elif block < FIRST_BLOCKS:
        column = block * COLUMNS + within
        b = _own(first_b_ptr, number, column, FIRST_WIDTH, RANK, RANK_BLOCK)
        if SUMMED:
            last_b = _own(last_b_ptr, number, column, LAST_WIDTH, RANK, RANK_BLOCK)
        early.wait(EARLY)
        added = _product(_values(first_parts_ptr, batch, count, FIRST_PARTS, RANK, RANK_BLOCK), b)
        if SUMMED:
            added += _product(_values(last_parts_ptr, batch, count, LAST_PARTS, RANK, RANK_BLOCK), last_b)
        _add(out_ptr + batch * out_stride + FIRST + column, added, column < FIRST_WIDTH)
    else:
        column = (block - FIRST_BLOCKS) * COLUMNS + within
        b = _own(last_b_ptr, number, column, LAST_WIDTH, RANK, RANK_BLOCK)
        early.wait(EARLY)
        added = _product(_values(last_parts_ptr, batch, count, LAST_PARTS, RANK, RANK_BLOCK), b)
        _add(out_ptr + batch * out_stride + LAST + column, added, column < LAST_WIDTH)


@triton.jit
def _own(b_ptr, number, column, WIDTH: tl.constexpr, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr):
    """Return an adapter's B at some columns, (RANK_BLOCK, COLUMNS)."""
    rank = tl.arange(0, RANK_BLOCK)
    b_ptrs = b_ptr + (number * RANK + rank[:, None]) * WIDTH + column[None, :]
    return tl.load(b_ptrs, mask=(rank < RANK)[:, None] & (column < WIDTH)[None, :], other=0.0)


@triton.jit
def _values(parts_ptr, batch, count, PARTS: tl.constexpr, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr):
    """Return a row's thin values, added up from their parts."""
    rank = tl.arange(0, RANK_BLOCK)
    thin = tl.zeros((RANK_BLOCK,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        thin += tl.load(parts_ptr + (part * count + batch) * RANK + rank, mask=rank < RANK, other=0.0)
    return thin


@triton.jit
def _product(thin, b):
    return tl.sum(b.to(tl.float32) * thin[:, None], axis=0)


@triton.jit
def _add(out_ptrs, added, inside):
    sums = tl.load(out_ptrs, mask=inside, other=0.0).to(tl.float32) + added
    tl.store(out_ptrs, sums.to(out_ptrs.dtype.element_ty), mask=inside)
