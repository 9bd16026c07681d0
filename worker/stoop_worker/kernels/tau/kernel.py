# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""GELU and the thin product of tau in one launch. Letters as in `reference`.

A program takes a block of rows and one part of their columns, for all rows of the weight.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early

__all__ = ["Cut", "cut_for", "tau_parts"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The split of the work: rows and columns at a time, both powers of two, and parts of the columns."""

    rows: int
    columns: int
    parts: int
    warps: int = 4
    stages: int = 3


_FEW, _MIDDLE, _MANY = Cut(16, 128, 48, stages=1), Cut(64, 64, 48), Cut(64, 128, 12)


def cut_for(count: int) -> Cut:
    """Return the split for `count` rows: with few rows most of the device is idle unless there are many parts."""
    return _FEW if count <= early.MOST_ROWS else _MIDDLE if count <= 256 else _MANY


def tau_parts(
    qkv_TN: Tensor, w_XN: Tensor, *, tanh_gelu: bool, plainly: bool = False, cut: Cut | None = None
) -> Tensor:
    """Compute `reference.tau_parts` in several parts; rows may be strided, their columns are contiguous."""
    (count, width), out = qkv_TN.shape, w_XN.shape[0]
    cut = cut or cut_for(count)
    parts = min(cut.parts, triton.cdiv(width, cut.columns))
    parts_STX = torch.empty((parts, count, out), dtype=torch.float32, device=qkv_TN.device)
    if count == 0:
        return parts_STX
    kernel: Any = _parts
    kernel[(triton.cdiv(count, cut.rows), parts)](
        qkv_TN,
        w_XN.contiguous(),
        parts_STX,
        count,
        qkv_TN.stride(0),
        N=width,
        X=out,
        X_BLOCK=max(16, triton.next_power_of_2(out)),
        PART=triton.cdiv(triton.cdiv(width, cut.columns), parts) * cut.columns,
        ROWS=cut.rows,
        COLUMNS=cut.columns,
        STAGES=cut.stages,
        TANH=tanh_gelu,
        PRECISION="ieee" if qkv_TN.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=cut.warps,
        **early.options(qkv_TN.device, count, plainly=plainly),
    )
    return parts_STX


@triton.jit
def _parts(
    rows_ptr,
    w_ptr,
    parts_ptr,
    count,
    row_stride,
    N: tl.constexpr,
    X: tl.constexpr,
    X_BLOCK: tl.constexpr,
    PART: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    TANH: tl.constexpr,
    PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(1)
    out = tl.arange(0, X_BLOCK)
    column = tl.arange(0, COLUMNS)
    rows_ptrs = rows_ptr + row.to(tl.int64)[:, None] * row_stride + column[None, :]
    w_ptrs = w_ptr + out[None, :] * N + column[:, None]
    early.wait(EARLY)
    sums = tl.zeros((ROWS, X_BLOCK), dtype=tl.float32)
    for start in tl.range(part * PART, (part + 1) * PART, COLUMNS, num_stages=STAGES):
        inside = start + column < N
        x = tl.load(rows_ptrs + start, mask=(row < count)[:, None] & inside[None, :], other=0.0)
        w = tl.load(w_ptrs + start, mask=inside[:, None] & (out < X)[None, :], other=0.0)
        wide = x.to(tl.float32)
        if TANH:
            # (1 + tanh z) / 2 is sigmoid(2 z); the factor is 2 sqrt(2 / pi)
            z = wide * tl.sigmoid(1.5957691216057308 * (wide + 0.044715 * wide * wide * wide))
        else:
            z = 0.5 * wide * (1.0 + tl.erf(wide * 0.7071067811865476))
        sums = tl.dot(z.to(x.dtype), w, sums, input_precision=PRECISION)
    place = (part.to(tl.int64) * count + row[:, None]) * X + out[None, :]
    tl.store(parts_ptr + place, sums, mask=(row < count)[:, None] & (out < X)[None, :])
