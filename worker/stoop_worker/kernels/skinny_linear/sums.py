# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Adds up the parts of a product, in one launch with one program a row. Letters as in `reference`."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.layer_norm.reference import EPSILON
from stoop_worker.kernels.moe import ExpertOutputs

__all__ = ["add_parts", "add_parts_layer_norm"]

_ROW_WARPS, _ONE_ROW_WARPS = 8, 16


def add_parts(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    *,
    experts: ExpertOutputs | None = None,
    row_warps: int | None = None,
) -> Tensor:
    """Compute `reference.add_parts`, without experts to the bit.

    `row_warps` overrides the number of warps that share a row.
    """
    sum_BC = torch.empty_like(x_BC, memory_format=torch.contiguous_format)
    _launch(_Terms(x_BC, parts_SBC, added_bias_C, experts), None, sum_BC, sum_BC, row_warps=row_warps)
    return sum_BC


def add_parts_layer_norm(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    experts: ExpertOutputs | None = None,
    row_warps: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.add_parts_layer_norm`; `row_warps` overrides the number of warps that share a row."""
    sum_BC, normed_BC = (torch.empty_like(x_BC, memory_format=torch.contiguous_format) for _ in range(2))
    terms = _Terms(x_BC, parts_SBC, added_bias_C, experts)
    _launch(terms, (weight_C, bias_C), sum_BC, normed_BC, row_warps=row_warps)
    return sum_BC, normed_BC


class _Terms(NamedTuple):
    x_BC: Tensor
    parts_SBC: Tensor
    added_bias_C: Tensor
    experts: ExpertOutputs | None


def _launch(
    terms: _Terms,
    norm: tuple[Tensor, Tensor] | None,
    sum_BC: Tensor,
    normed_BC: Tensor,
    *,
    row_warps: int | None,
) -> None:
    x_BC, parts_SBC, added_bias_C = (term.contiguous() for term in terms[:3])
    found_PC, weights_BK = (x_BC, x_BC[:, :0]) if terms.experts is None else terms.experts
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
        found_PC,
        weights_BK,
        weight_C,
        bias_C,
        sum_BC,
        normed_BC,
        x_BC.numel(),
        EPSILON=EPSILON,
        C=width,
        BLOCK=triton.next_power_of_2(width),
        PARTS=len(parts_SBC),
        EXPERTS=weights_BK.shape[1],
        NORM=norm is not None,
        num_warps=row_warps or (_ONE_ROW_WARPS if count == 1 else _ROW_WARPS),
        **early.options(x_BC.device, count),
    )


@triton.jit
def _add_parts(
    x_ptr,
    parts_ptr,
    added_bias_ptr,
    found_ptr,
    shares_ptr,
    weight_ptr,
    bias_ptr,
    sum_ptr,
    normed_ptr,
    part_stride,
    EPSILON: tl.constexpr,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    EXPERTS: tl.constexpr,
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
    if EXPERTS > 0:
        row = tl.program_id(0).to(tl.int64)
        mixed = tl.zeros((BLOCK,), dtype=tl.float32)
        for rank in tl.static_range(EXPERTS):
            share = tl.load(shares_ptr + row * EXPERTS + rank).to(tl.float32)
            found = tl.load(found_ptr + (row * EXPERTS + rank) * C + column, mask=inside, other=0.0)
            mixed += share * found.to(tl.float32)
        added += mixed
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
    rounded = (x + added.to(dtype).to(tl.float32)).to(dtype)
    tl.store(sum_ptr + start + column, rounded, mask=inside)

    if NORM:
        normed = rounded.to(tl.float32)
        mean = tl.sum(normed, axis=0) / C
        normed = tl.where(inside, normed - mean, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(normed * normed, axis=0) / C + EPSILON)
        tl.store(normed_ptr + start + column, (normed * scale * weight + bias).to(dtype), mask=inside)
