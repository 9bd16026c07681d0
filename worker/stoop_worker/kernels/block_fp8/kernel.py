# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""The conversion of a block-wise float8 weight. A program takes some columns of some rows."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.block_fp8.reference import BlockFp8

__all__ = ["dense"]

_ROWS, _COLUMNS = 16, 512


def dense(weight: BlockFp8, dtype: torch.dtype) -> Tensor:
    """Compute `reference.dense`."""
    values_NC = weight.values_NC.contiguous()
    rows, columns = values_NC.shape
    out_NC = torch.empty((rows, columns), dtype=dtype, device=values_NC.device)
    kernel: Any = _dense
    kernel[(triton.cdiv(rows, _ROWS), triton.cdiv(columns, _COLUMNS))](
        values_NC,
        weight.scales.contiguous(),
        out_NC,
        rows,
        columns,
        weight.scales.shape[1],
        SIDE=weight.side,
        ROWS=_ROWS,
        COLUMNS=_COLUMNS,
        num_warps=4,
    )
    return out_NC


@triton.jit
def _dense(
    values_ptr,
    scales_ptr,
    out_ptr,
    rows,
    columns,
    scale_columns,
    SIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    place = row.to(tl.int64) * columns + column
    value = tl.load(values_ptr + place, mask=inside, other=0.0).to(tl.float32)
    scale = tl.load(scales_ptr + row // SIDE * scale_columns + column // SIDE, mask=inside, other=0.0)
    tl.store(out_ptr + place, (value * scale).to(out_ptr.dtype.element_ty), mask=inside)
