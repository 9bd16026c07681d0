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
from stoop_worker.kernels.skinny_linear.reference import NO_OTHERS, Others

__all__ = ["add_parts", "add_parts_layer_norm", "add_parts_rms_norm"]

_ROW_WARPS, _ONE_ROW_WARPS = 8, 16


def add_parts(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor | None = None,
    *,
    others: Others = NO_OTHERS,
) -> Tensor:
    """Compute `reference.add_parts`; without experts the result is bit-identical."""
    sum_BC = torch.empty_like(x_BC, memory_format=torch.contiguous_format)
    _launch(_Terms(x_BC, parts_SBC, added_bias_C, others), None, (sum_BC, sum_BC))
    return sum_BC


def add_parts_layer_norm(
    x_BC: Tensor,
    parts_SBC: Tensor,
    added_bias_C: Tensor,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    others: Others = NO_OTHERS,
) -> tuple[Tensor, Tensor]:
    """Compute `reference.add_parts_layer_norm`."""
    sum_BC, normed_BC = (torch.empty_like(x_BC, memory_format=torch.contiguous_format) for _ in range(2))
    terms = _Terms(x_BC, parts_SBC, added_bias_C, others)
    _launch(terms, _Norm(weight_C, bias_C, EPSILON), (sum_BC, normed_BC))
    return sum_BC, normed_BC


def add_parts_rms_norm(
    x_BC: Tensor, parts_SBC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `reference.add_parts_rms_norm`."""
    sum_BC = torch.empty_like(x_BC, memory_format=torch.contiguous_format)
    normed_BC = torch.empty_like(sum_BC, dtype=dtype)
    _launch(_Terms(x_BC, parts_SBC), _Norm(weight_C, None, epsilon), (sum_BC, normed_BC))
    return sum_BC, normed_BC


class _Terms(NamedTuple):
    x_BC: Tensor
    parts_SBC: Tensor
    added_bias_C: Tensor | None = None
    others: Others = NO_OTHERS


class _Norm(NamedTuple):
    """A layer norm, or an RMS norm if there is no bias."""

    weight_C: Tensor
    bias_C: Tensor | None
    epsilon: float


def _launch(terms: _Terms, norm: _Norm | None, into: tuple[Tensor, Tensor]) -> None:
    x_BC, parts_SBC = terms.x_BC.contiguous(), terms.parts_SBC.contiguous()
    experts, corrections_BC, joined = terms.others
    found_PC, weights_BK = experts or (x_BC, x_BC[:, :0])
    if parts_SBC.shape[1:] != x_BC.shape:
        raise ValueError(f"parts of {tuple(parts_SBC.shape[1:])} do not fit rows of {tuple(x_BC.shape)}")
    count, width = x_BC.shape
    if count == 0:
        return
    weight_C, bias_C = (None, None) if norm is None else (norm.weight_C, norm.bias_C)
    most = early.MOST_ROWS if weight_C is None else early.MOST_IN_LINE_ROWS
    kernel: Any = _add_parts
    kernel[(count,)](
        x_BC,
        parts_SBC,
        _or(terms.added_bias_C, x_BC),
        found_PC,
        weights_BK,
        _or(corrections_BC, x_BC),
        _or(corrections_BC, x_BC),
        _or(weight_C, x_BC),
        _or(bias_C, x_BC),
        *into,
        x_BC.numel(),
        0.0 if norm is None else norm.epsilon,
        C=width,
        BLOCK=triton.next_power_of_2(width),
        PARTS=len(parts_SBC),
        EXPERTS=weights_BK.shape[1],
        CORRECTIONS=int(corrections_BC is not None),
        ADDED_BIAS=terms.added_bias_C is not None,
        NORM=norm is not None,
        CENTRED=bias_C is not None,
        num_warps=_ONE_ROW_WARPS if count == 1 else _ROW_WARPS,
        **early.options(x_BC.device, count, plainly=joined, most=most),
    )


def _or(given: Tensor | None, unread: Tensor) -> Tensor:
    return unread if given is None else given.contiguous()


@triton.jit
def _add_parts(
    x_ptr,
    parts_ptr,
    added_bias_ptr,
    found_ptr,
    shares_ptr,
    corrections_ptr,
    more_corrections_ptr,
    weight_ptr,
    bias_ptr,
    sum_ptr,
    normed_ptr,
    part_stride,
    epsilon,
    C: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    EXPERTS: tl.constexpr,
    CORRECTIONS: tl.constexpr,
    ADDED_BIAS: tl.constexpr,
    NORM: tl.constexpr,
    CENTRED: tl.constexpr,
    EARLY: tl.constexpr,
):
    start = tl.program_id(0).to(tl.int64) * C
    column = tl.arange(0, BLOCK)
    inside = column < C
    dtype = x_ptr.dtype.element_ty

    early.let_next_start(EARLY)
    if ADDED_BIAS:
        added_bias = tl.load(added_bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if NORM:
        weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    if CENTRED:
        bias = tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    early.wait(EARLY)

    added = tl.load(parts_ptr + start + column, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        added += tl.load(parts_ptr + part * part_stride + start + column, mask=inside, other=0.0)
    if ADDED_BIAS:
        added += added_bias
    if EXPERTS > 0:
        added += _mixed(found_ptr, shares_ptr, column, C, BLOCK, EXPERTS)
    added = _corrected(added, corrections_ptr + start, more_corrections_ptr + start, column, inside, CORRECTIONS)
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0).to(tl.float32)
    rounded = (x + added.to(dtype).to(tl.float32)).to(dtype)
    tl.store(sum_ptr + start + column, rounded, mask=inside)

    if NORM:
        normed = rounded.to(tl.float32)
        if CENTRED:
            normed = tl.where(inside, normed - tl.sum(normed, axis=0) / C, 0.0)
        normed *= 1.0 / tl.sqrt(tl.sum(normed * normed, axis=0) / C + epsilon) * weight
        if CENTRED:
            normed += bias
        tl.store(normed_ptr + start + column, normed.to(normed_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _mixed(found_ptr, shares_ptr, column, C: tl.constexpr, BLOCK: tl.constexpr, EXPERTS: tl.constexpr):
    """Return the weighted sum of the experts that this program's row chose."""
    row = tl.program_id(0).to(tl.int64)
    mixed = tl.zeros((BLOCK,), dtype=tl.float32)
    for rank in tl.static_range(EXPERTS):
        share = tl.load(shares_ptr + row * EXPERTS + rank).to(tl.float32)
        found = tl.load(found_ptr + (row * EXPERTS + rank) * C + column, mask=column < C, other=0.0)
        mixed += share * found.to(tl.float32)
    return mixed


@triton.jit
def _corrected(sums, first_ptr, second_ptr, column, inside, COUNT: tl.constexpr):
    """Return the sums of a row with its corrections, of which there are COUNT, up to two."""
    if COUNT > 0:
        sums += tl.load(first_ptr + column, mask=inside, other=0.0)
    if COUNT > 1:
        sums += tl.load(second_ptr + column, mask=inside, other=0.0)
    return sums
