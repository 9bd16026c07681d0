# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""GELU and the thin product of tau in one launch. Letters as in `reference`.

A program takes a block of rows and one part of their columns, for all rows of the weight.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early

__all__ = ["tau_parts"]

_FEW_ROWS = 64
_COLUMNS = 128


def tau_parts(qkv_TN: Tensor, w_XN: Tensor, *, tanh_gelu: bool) -> Tensor:
    """Compute `reference.tau_parts` in several parts; rows may be strided, their columns are contiguous."""
    (count, width), out = qkv_TN.shape, w_XN.shape[0]
    few = count <= _FEW_ROWS
    parts = min(12 if few else 4, triton.cdiv(width, _COLUMNS))
    parts_STX = torch.empty((parts, count, out), dtype=torch.float32, device=qkv_TN.device)
    if count == 0:
        return parts_STX
    rows = 16 if few else 64
    kernel: Any = _parts
    kernel[(triton.cdiv(count, rows), parts)](
        qkv_TN,
        w_XN.contiguous(),
        parts_STX,
        count,
        qkv_TN.stride(0),
        N=width,
        X=out,
        X_BLOCK=max(16, triton.next_power_of_2(out)),
        PART=triton.cdiv(triton.cdiv(width, _COLUMNS), parts) * _COLUMNS,
        ROWS=rows,
        COLUMNS=_COLUMNS,
        TANH=tanh_gelu,
        PRECISION="ieee" if qkv_TN.dtype == torch.float32 else "tf32",  # matters only for float32
        num_warps=4,
        **early.options(qkv_TN.device, count),
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
    for start in range(part * PART, (part + 1) * PART, COLUMNS):
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
