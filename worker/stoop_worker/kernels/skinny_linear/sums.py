# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Adds up the parts of a product, in one launch with one program a row. Letters as in `reference`."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.layer_norm.reference import EPSILON

__all__ = ["add_parts", "add_parts_layer_norm"]

_ROW_WARPS, _ONE_ROW_WARPS = 8, 16


def add_parts(x_BC: Tensor, parts_SBC: Tensor, added_bias_C: Tensor, *, row_warps: int | None = None) -> Tensor:
    """Compute `reference.add_parts`, bit-identical; `row_warps` overrides the number of warps that share a row."""
    sum_BC = torch.empty_like(x_BC, memory_format=torch.contiguous_format)
    _launch((x_BC, parts_SBC, added_bias_C), None, sum_BC, sum_BC, row_warps=row_warps)
    return sum_BC


def add_parts_layer_norm(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    row_warps: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.add_parts_layer_norm`; `row_warps` overrides the number of warps that share a row."""
    sum_BC, normed_BC = (torch.empty_like(x_BC, memory_format=torch.contiguous_format) for _ in range(2))
    _launch((x_BC, parts_SBC, added_bias_C), (weight_C, bias_C), sum_BC, normed_BC, row_warps=row_warps)
    return sum_BC, normed_BC


def _launch(
    terms: tuple[Tensor, Tensor, Tensor],
    norm: tuple[Tensor, Tensor] | None,
    sum_BC: Tensor,
    normed_BC: Tensor,
    *,
    row_warps: int | None,
) -> None:
    x_BC, parts_SBC, added_bias_C = (term.contiguous() for term in terms)
    if parts_SBC.shape[1:] != x_BC.shape:
        raise ValueError(f"parts of {tuple(parts_SBC.shape[1:])} do not fit rows of {tuple(x_BC.shape)}")
    count, width = x_BC.shape
    if count == 0:
        return
    weight_C, bias_C = (added_bias_C, added_bias_C) if norm is None else (part.contiguous() for part in norm)
    kernel: Any = _add_parts
    kernel[(count,)](
        x_BC,
        parts_SBC,
        added_bias_C,
        weight_C,
        bias_C,
        sum_BC,
        normed_BC,
        x_BC.numel(),
        EPSILON=EPSILON,
        C=width,
        BLOCK=triton.next_power_of_2(width),
        PARTS=len(parts_SBC),
        NORM=norm is not None,
        num_warps=row_warps or (_ONE_ROW_WARPS if count == 1 else _ROW_WARPS),
        **early.options(x_BC.device, count),
    )


@triton.jit
def _add_parts(
    x_ptr,
    parts_ptr,
    added_bias_ptr,
    weight_ptr,
    bias_ptr,
    sum_ptr,
    normed_ptr,
    part_stride,
    EPSILON: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    NORM: tl.constexpr,
    EARLY: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * C
    column = tl.arange(0, BLOCK)
    inside = column < C
    dtype = x_ptr.dtype.element_ty

    early.let_next_start(EARLY)
    added_bias = tl.load(added_bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    early.wait(EARLY)

    added = tl.load(parts_ptr + start + column, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        added += tl.load(parts_ptr + part * part_stride + start + column, mask=inside, other=0.0)
    added += added_bias
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
    rounded = (x + added.to(dtype).to(tl.float32)).to(dtype)
    tl.store(sum_ptr + start + column, rounded, mask=inside)

    if NORM:
        row = rounded.to(tl.float32)
        mean = tl.sum(row, axis=0) / C
        row = tl.where(inside, row - mean, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(row * row, axis=0) / C + EPSILON)
        tl.store(normed_ptr + start + column, (row * scale * weight + bias).to(dtype), mask=inside)
