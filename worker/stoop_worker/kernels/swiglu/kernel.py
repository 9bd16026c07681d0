# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
"""SwiGLU in one pass. Letters as in `reference`; a program takes a block of one row's columns."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early

__all__ = ["swiglu"]

_BLOCK = 2048


def swiglu(gate_up_TN: Tensor) -> Tensor:
    """Compute `reference.swiglu`; rows may be strided, their columns are contiguous."""
    rows, columns = gate_up_TN.shape[0], gate_up_TN.shape[1] // 2
    out_TF = torch.empty((rows, columns), dtype=gate_up_TN.dtype, device=gate_up_TN.device)
    if rows == 0:
        return out_TF
    kernel: Any = _swiglu
    kernel[(rows, triton.cdiv(columns, _BLOCK))](
        gate_up_TN,
        out_TF,
        gate_up_TN.stride(0),
        F=columns,
        BLOCK=min(_BLOCK, triton.next_power_of_2(columns)),
        num_warps=4,
        **early.options(gate_up_TN.device, rows),
    )
    return out_TF


@triton.jit
def _swiglu(rows_ptr, out_ptr, row_stride, F: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    early.let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < F
    early.wait(EARLY)
    gate = tl.load(rows_ptr + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(rows_ptr + row * row_stride + F + column, mask=inside, other=0.0).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + row * F + column, value.to(out_ptr.dtype.element_ty), mask=inside)
