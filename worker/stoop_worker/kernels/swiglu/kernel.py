# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""SwiGLU and GeGLU in one pass. Letters as in `reference`; a program takes a block of one row's columns."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early

__all__ = ["geglu", "swiglu"]

_BLOCK = 2048


def swiglu(gate_up_TN: Tensor) -> Tensor:
    """Compute `reference.swiglu`; rows may be strided, their columns are contiguous."""
    return _launch(gate_up_TN, gelu=False)


def geglu(gate_up_TN: Tensor) -> Tensor:
    """Compute `reference.geglu`; rows may be strided, their columns are contiguous."""
    return _launch(gate_up_TN, gelu=True)


def _launch(gate_up_TN: Tensor, *, gelu: bool) -> Tensor:
    rows, columns = gate_up_TN.shape[0], gate_up_TN.shape[1] // 2
    out_TF = torch.empty((rows, columns), dtype=gate_up_TN.dtype, device=gate_up_TN.device)
    if rows == 0:
        return out_TF
    kernel: Any = _gated
    kernel[(rows, triton.cdiv(columns, _BLOCK))](
        gate_up_TN,
        out_TF,
        gate_up_TN.stride(0),
        F=columns,
        BLOCK=min(_BLOCK, triton.next_power_of_2(columns)),
        GELU=gelu,
        num_warps=4,
        **early.options(gate_up_TN.device, rows),
    )
    return out_TF


@triton.jit
def _gated(
    rows_ptr, out_ptr, row_stride, F: tl.constexpr, BLOCK: tl.constexpr, GELU: tl.constexpr, EARLY: tl.constexpr
):
    early.let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < F
    early.wait(EARLY)
    gate = tl.load(rows_ptr + row * row_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(rows_ptr + row * row_stride + F + column, mask=inside, other=0.0).to(tl.float32)
    steepness = gate
    if GELU:  # 0.5 (1 + tanh(z)) is the sigmoid of 2 z, here of 2 sqrt(2 / pi) (x + 0.044715 x^3)
        steepness = 1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)
    value = gate * tl.sigmoid(steepness) * up
    tl.store(out_ptr + row * F + column, value.to(out_ptr.dtype.element_ty), mask=inside)
