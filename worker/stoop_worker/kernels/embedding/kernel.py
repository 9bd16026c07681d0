# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Embeddings in one launch. Letters as in `reference`; a program takes a block of one row's channels."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["embed"]

_BLOCK = 2048


def embed(ids_B: Tensor, index_B: Tensor, last_N: Tensor, table_VC: Tensor) -> Tensor:
    """Compute `reference.embed`; the rows of the table are contiguous."""
    rows, width = len(ids_B), table_VC.shape[1]
    x_BC = torch.empty((rows, width), dtype=table_VC.dtype, device=table_VC.device)
    kernel: Any = _embed
    kernel[(rows, triton.cdiv(width, _BLOCK))](
        ids_B,
        index_B,
        last_N,
        table_VC,
        x_BC,
        table_VC.stride(0),
        C=width,
        BLOCK=min(_BLOCK, triton.next_power_of_2(width)),
        num_warps=4,
    )
    return x_BC


@triton.jit
def _embed(ids_ptr, index_ptr, last_ptr, table_ptr, out_ptr, row_stride, C: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = channel < C
    given = tl.load(ids_ptr + row)
    last = tl.load(last_ptr + tl.load(index_ptr + row))
    token = tl.where(given < 0, last, given)
    values = tl.load(table_ptr + token * row_stride + channel, mask=inside)
    tl.store(out_ptr + row * C + channel, values, mask=inside)
