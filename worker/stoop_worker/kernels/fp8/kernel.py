# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Rounds rows to fp8 in one pass. T rows, C values of a row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.fp8.rows import parts, rounded_to_bfloat16, store_fp8, warps

__all__ = ["gelu_fp8", "quantise_rows"]


def quantise_rows(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """See the reference."""
    return _launch(x_TC, gelu=False)


def gelu_fp8(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    """See the reference."""
    return _launch(x_TC, gelu=True)


def _launch(x_TC: Tensor, *, gelu: bool) -> tuple[Tensor, Tensor]:
    x_TC = x_TC.contiguous()
    width = x_TC.shape[-1]
    rows = x_TC.numel() // width
    values_TC = torch.empty_like(x_TC, dtype=torch.float8_e4m3fn)
    scale_T1 = torch.empty((*x_TC.shape[:-1], 1), dtype=torch.float32, device=x_TC.device)
    head, tail = parts(width)
    _to_fp8[(rows,)](
        x_TC,
        values_TC,
        scale_T1,
        C=width,
        HEAD=head,
        TAIL=tail,
        GELU=gelu,
        PACKED=x_TC.dtype is torch.bfloat16 and x_TC.is_cuda and torch.version.cuda is not None,
        num_warps=warps(rows, width),
    )
    return values_TC, scale_T1


@triton.jit
def _to_fp8(
    x,
    values,
    scales,
    C: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    GELU: tl.constexpr,
    PACKED: tl.constexpr,
):  # one program a row
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, HEAD)
    tail_cols = HEAD + tl.arange(0, TAIL)
    head = tl.load(x + row * C + cols).to(tl.float32)
    tail = tl.load(x + row * C + tail_cols, mask=tail_cols < C, other=0.0).to(tl.float32)
    if GELU:
        head = _rounded(_gelu(head), x.dtype.element_ty, PACKED)
        tail = _rounded(_gelu(tail), x.dtype.element_ty, PACKED)
    store_fp8(head, tail, values, scales, row, C, HEAD, TAIL)


@triton.jit
def _rounded(x, dtype: tl.constexpr, PACKED: tl.constexpr):
    return rounded_to_bfloat16(x) if PACKED else x.to(dtype).to(tl.float32)


@triton.jit
def _gelu(x):
    # 0.5 (1 + tanh u) is 1 / (1 + e^-2u) with u = sqrt(2 / pi) (x + 0.044715 x^3); the factors include log2(e)
    return x / (1.0 + tl.exp2(x * (-2.302208198144325 - 0.1029432395800235 * x * x)))
