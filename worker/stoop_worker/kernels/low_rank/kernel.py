# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Both products of low-rank corrections: a program takes up to 16 rows of one adapter, and reads its columns alone.

Programs read the groups before the kernel ahead has ended, and those of the second product adapters too. A kernel that
was not launched early must therefore lie between the last write of these and every call. In a decode step this is its
first layer norm, which neither starts early nor lets the next kernel start early: the groups are made just before it,
and adapters before the step. Copies by `contiguous` are launched in the same way. Letters as in `reference`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.low_rank.reference import Groups, Term

__all__ = ["correct", "correction", "group_rows", "thin_values"]

_TILE = 16  # the fewest rows of a dot
_PART, _STEP = 512, 128  # of x and A: columns of a program, and those read at a time
_COLUMNS = 256  # of B
_MOST_LAYERS, _MOST_TERMS = 3, 2


def group_rows(numbers_B: Tensor, count: int) -> Groups:
    """Compute `reference.group_rows`, in as many tiles as there can be."""
    rows = len(numbers_B)
    tiles = rows // _TILE + min(rows, count)
    tiles_G = torch.empty(tiles, dtype=torch.int32, device=numbers_B.device)
    rows_GT = torch.empty((tiles, _TILE), dtype=torch.int32, device=numbers_B.device)
    if rows:
        kernel: Any = _group
        kernel[(tiles,)](
            numbers_B.contiguous(),
            tiles_G,
            rows_GT,
            rows,
            S=count,
            S_BLOCK=triton.next_power_of_2(count),
            B_BLOCK=triton.next_power_of_2(rows),
            TILE=_TILE,
            num_warps=4,
        )
    return Groups(numbers_B, tiles_G, rows_GT)


def thin_values(x_BI: Tensor, a_KIs: Sequence[Tensor], groups: Groups, rank: int, *, plainly: bool = False) -> Tensor:
    """Compute `reference.thin_values` in several parts, for up to three layers."""
    if not 0 < len(a_KIs) <= _MOST_LAYERS:
        raise ValueError(f"there are {len(a_KIs)} layers: give 1 to {_MOST_LAYERS}")
    (count, width), layers = x_BI.shape, len(a_KIs)
    parts = triton.cdiv(width, _PART)
    parts_MSBR = torch.empty((layers, parts, count, rank), dtype=torch.float32, device=x_BI.device)
    if not count:
        return parts_MSBR
    tiles_G, rows_GT = _tiles(groups)
    kernel: Any = _thin
    kernel[(parts, len(tiles_G), layers)](
        x_BI,
        *_padded([a_KI.contiguous() for a_KI in a_KIs], _MOST_LAYERS),
        tiles_G,
        rows_GT,
        parts_MSBR,
        x_BI.stride(0),
        count,
        I=width,
        RANK=rank,
        RANK_BLOCK=_rank_block(rank),
        PART=_PART,
        STEP=min(_STEP, max(16, triton.next_power_of_2(width))),
        TILE=_TILE,
        PRECISION=_precision(x_BI),
        num_warps=4,
        **early.options(x_BI.device, count, plainly=plainly),
    )
    return parts_MSBR


def correct(out_BO: Tensor, terms: Sequence[Term], groups: Groups, *, plainly: bool = False) -> None:
    """Compute `reference.correct` for up to two terms, which have the same columns or none in common."""
    _correct_or_set(out_BO, terms, groups, plainly=plainly, fresh=False)


def correction(terms: Sequence[Term], groups: Groups, *, plainly: bool = False) -> Tensor:
    """Compute `reference.correction` for up to two terms."""
    shape = len(groups.numbers_B), terms[0].b_KO.shape[1]
    out_BO = torch.empty(shape, dtype=torch.float32, device=groups.numbers_B.device)
    _correct_or_set(out_BO, terms, groups, plainly=plainly, fresh=True)
    return out_BO


def _correct_or_set(out_BO: Tensor, terms: Sequence[Term], groups: Groups, *, plainly: bool, fresh: bool) -> None:
    if not 0 < len(terms) <= _MOST_TERMS:
        raise ValueError(f"there are {len(terms)} terms: give 1 to {_MOST_TERMS}")
    first, last = terms[0], terms[-1]
    parts, count, rank = first.parts_SBR.shape
    if not count:
        return
    summed = len(terms) == 2 and first.start == last.start
    blocks = [triton.cdiv(term.b_KO.shape[1], _COLUMNS) for term in ([first] if summed else terms)]
    tiles_G, rows_GT = _tiles(groups)
    kernel: Any = _correct
    kernel[(sum(blocks), len(tiles_G))](
        out_BO,
        first.parts_SBR,
        last.parts_SBR,
        first.b_KO.contiguous(),
        last.b_KO.contiguous(),
        tiles_G,
        rows_GT,
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
        FRESH=fresh,
        RANK=rank,
        RANK_BLOCK=_rank_block(rank),
        COLUMNS=_COLUMNS,
        TILE=_TILE,
        PRECISION=_precision(first.b_KO),
        num_warps=4,
        **early.options(out_BO.device, count, plainly=plainly),
    )


def _tiles(groups: Groups) -> tuple[Tensor, Tensor]:
    assert groups.tiles_G is not None and groups.rows_GT is not None, "kernels take rows that a kernel grouped"
    return groups.tiles_G, groups.rows_GT


def _rank_block(rank: int) -> int:
    return max(16, int(triton.next_power_of_2(rank)))


def _precision(x: Tensor) -> str:
    return "ieee" if x.dtype == torch.float32 else "tf32"  # matters only for float32


def _padded(given: list[Tensor], most: int) -> list[Tensor]:
    return given + [given[-1]] * (most - len(given))


@triton.jit
def _group(
    numbers_ptr,
    tiles_ptr,
    rows_ptr,
    count,
    S: tl.constexpr,
    S_BLOCK: tl.constexpr,
    B_BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    # a program makes one tile: it counts the tiles of the numbers before its own, then finds its rows
    tile = tl.program_id(0)
    row = tl.arange(0, B_BLOCK)
    each = tl.arange(0, S_BLOCK)
    number = tl.load(numbers_ptr + row, mask=row < count, other=-1).to(tl.int32)
    tiles = tl.cdiv(tl.sum((number[None, :] == each[:, None]).to(tl.int32), axis=1), TILE)
    upto = tl.cumsum(tiles, axis=0)
    mine = tl.sum(((upto <= tile) & (each < S)).to(tl.int32), axis=0)
    first = tl.sum(tl.where(each == mine, (tile - upto + tiles) * TILE, 0), axis=0)
    own = number == mine
    place = tl.cumsum(own.to(tl.int32), axis=0) - 1 - first
    slot = tl.arange(0, TILE)
    here = own[None, :] & (place[None, :] == slot[:, None])
    tl.store(rows_ptr + tile * TILE + slot, tl.max(tl.where(here, row[None, :], -1), axis=1))
    tl.store(tiles_ptr + tile, tl.where(mine < S, mine, 0))


@triton.jit
def _thin(
    x_ptr,
    a0_ptr,
    a1_ptr,
    a2_ptr,
    tiles_ptr,
    rows_ptr,
    parts_ptr,
    x_stride,
    count,
    I: tl.constexpr,  # noqa: E741
    RANK: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
    PART: tl.constexpr,
    STEP: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    part = tl.program_id(0)
    layer = tl.program_id(2)
    number, row, there = _rows_of(tiles_ptr, rows_ptr, TILE)
    early.wait(EARLY)
    if number > 0:
        a_ptr = a0_ptr
        if layer == 1:
            a_ptr = a1_ptr
        if layer == 2:
            a_ptr = a2_ptr
        rank = tl.arange(0, RANK_BLOCK)
        column = part * PART + tl.arange(0, STEP)
        x_ptrs = x_ptr + row[:, None] * x_stride + column[None, :]
        a_ptrs = a_ptr + (number * RANK + rank[None, :]) * I + column[:, None]
        thin = tl.zeros((TILE, RANK_BLOCK), dtype=tl.float32)
        for start in tl.range(0, PART, STEP, num_stages=4):
            inside = start + column < I
            x = tl.load(x_ptrs + start, mask=there[:, None] & inside[None, :], other=0.0)
            a = tl.load(a_ptrs + start, mask=(rank < RANK)[None, :] & inside[:, None], other=0.0)
            thin = tl.dot(x, a, thin, input_precision=PRECISION)
        place = ((layer * tl.num_programs(0) + part) * count + row[:, None]) * RANK + rank[None, :]
        tl.store(parts_ptr + place, thin, mask=there[:, None] & (rank < RANK)[None, :])


@triton.jit
def _correct(
    out_ptr,
    first_parts_ptr,
    last_parts_ptr,
    first_b_ptr,
    last_b_ptr,
    tiles_ptr,
    rows_ptr,
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
    FRESH: tl.constexpr,
    RANK: tl.constexpr,
    RANK_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    block = tl.program_id(0)
    number, row, there = _rows_of(tiles_ptr, rows_ptr, TILE)
    out_ptrs = out_ptr + row[:, None] * out_stride
    within = tl.arange(0, COLUMNS)
    added = tl.zeros((TILE, COLUMNS), dtype=tl.float32)
    if number == 0:
        early.wait(EARLY)
        if FRESH:
            column = block * COLUMNS + within
            _add(out_ptrs + FIRST + column[None, :], added, there, column < FIRST_WIDTH, FRESH)
    elif block < FIRST_BLOCKS:
        column = block * COLUMNS + within
        b = _own(first_b_ptr, number, column, FIRST_WIDTH, RANK, RANK_BLOCK)
        if SUMMED:
            last_b = _own(last_b_ptr, number, column, LAST_WIDTH, RANK, RANK_BLOCK)
        early.wait(EARLY)
        thin = _values(first_parts_ptr, row, there, count, FIRST_PARTS, RANK, RANK_BLOCK)
        added = tl.dot(thin.to(b.dtype), b, added, input_precision=PRECISION)
        if SUMMED:
            thin = _values(last_parts_ptr, row, there, count, LAST_PARTS, RANK, RANK_BLOCK)
            added = tl.dot(thin.to(b.dtype), last_b, added, input_precision=PRECISION)
        _add(out_ptrs + FIRST + column[None, :], added, there, column < FIRST_WIDTH, FRESH)
    else:
        column = (block - FIRST_BLOCKS) * COLUMNS + within
        b = _own(last_b_ptr, number, column, LAST_WIDTH, RANK, RANK_BLOCK)
        early.wait(EARLY)
        thin = _values(last_parts_ptr, row, there, count, LAST_PARTS, RANK, RANK_BLOCK)
        added = tl.dot(thin.to(b.dtype), b, added, input_precision=PRECISION)
        _add(out_ptrs + LAST + column[None, :], added, there, column < LAST_WIDTH, FRESH)


@triton.jit
def _rows_of(tiles_ptr, rows_ptr, TILE: tl.constexpr):
    """Return the number of this program's adapter, its rows, and which of them exist."""
    tile = tl.program_id(1)
    row = tl.load(rows_ptr + tile * TILE + tl.arange(0, TILE)).to(tl.int64)
    return tl.load(tiles_ptr + tile).to(tl.int64), tl.maximum(row, 0), row >= 0


@triton.jit
def _own(b_ptr, number, column, WIDTH: tl.constexpr, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr):
    """Return an adapter's B at some columns, (RANK_BLOCK, COLUMNS)."""
    rank = tl.arange(0, RANK_BLOCK)
    b_ptrs = b_ptr + (number * RANK + rank[:, None]) * WIDTH + column[None, :]
    return tl.load(b_ptrs, mask=(rank < RANK)[:, None] & (column < WIDTH)[None, :], other=0.0)


@triton.jit
def _values(parts_ptr, row, there, count, PARTS: tl.constexpr, RANK: tl.constexpr, RANK_BLOCK: tl.constexpr):
    """Return the rows' thin values, added up from their parts."""
    rank = tl.arange(0, RANK_BLOCK)
    thin = tl.zeros((row.shape[0], RANK_BLOCK), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        place = (part * count + row[:, None]) * RANK + rank[None, :]
        thin += tl.load(parts_ptr + place, mask=there[:, None] & (rank < RANK)[None, :], other=0.0)
    return thin


@triton.jit
def _add(out_ptrs, added, there, inside, FRESH: tl.constexpr):
    """Add to the output, or set it if it is FRESH."""
    mask = there[:, None] & inside[None, :]
    if not FRESH:
        added += tl.load(out_ptrs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptrs, added.to(out_ptrs.dtype.element_ty), mask=mask)
