# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Layer norm in one pass, with the sums before it and the rounding to fp8 after it. T rows, C model dim."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.fp8.rows import parts, rounded_sum, store_fp8, store_scaled_fp8, warps
from stoop_worker.kernels.layer_norm.reference import EPSILON

__all__ = ["add_layer_norm", "add_layer_norm_fp8", "layer_norm", "layer_norm_fp8", "norm_of_sum", "norm_of_sum_fp8"]

_Added = tuple[Tensor, ...]


class _Into(NamedTuple):
    """Receives the norm, with its scales if it is fp8, and at most one of the sum and the norm before its rounding.

    `scale` is that of all rows, if it is given.
    """

    normed_TC: Tensor
    scale_T1: Tensor | None = None
    sum_TC: Tensor | None = None
    plain_TC: Tensor | None = None
    scale: float | None = None


def layer_norm(x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """See the reference."""
    normed_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
    _launch(x_TC, (), weight_C, bias_C, _Into(normed_TC), epsilon=epsilon)
    return normed_TC


def add_layer_norm(
    x_TC: Tensor,
    added: _Added,
    weight_C: Tensor,
    bias_C: Tensor,
    *,
    epsilon: float = EPSILON,
    row_warps: int | None = None,
) -> tuple[Tensor, Tensor]:
    """See the reference; `row_warps` overrides the number of warps that share a row."""
    sum_TC, normed_TC = (torch.empty_like(x_TC, memory_format=torch.contiguous_format) for _ in range(2))
    options = {} if row_warps is None else {"num_warps": row_warps}
    _launch(x_TC, added, weight_C, bias_C, _Into(normed_TC, sum_TC=sum_TC), epsilon, **options)
    return sum_TC, normed_TC


def layer_norm_fp8(
    x_TC: Tensor, weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """See the reference."""
    values_TC, scale_T1 = _fp8_like(x_TC)
    _launch(x_TC, (), weight_C, bias_C, _Into(values_TC, scale_T1, scale=scale))
    return values_TC, scale_T1


def add_layer_norm_fp8(
    x_TC: Tensor, added: _Added, weight_C: Tensor, bias_C: Tensor, *, scale: float | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """See the reference."""
    sum_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
    values_TC, scale_T1 = _fp8_like(x_TC)
    _launch(x_TC, added, weight_C, bias_C, _Into(values_TC, scale_T1, sum_TC=sum_TC, scale=scale))
    return sum_TC, (values_TC, scale_T1)


def norm_of_sum(
    x_TC: Tensor, added: _Added, weight_C: Tensor, bias_C: Tensor, *, into_TC: Tensor | None = None
) -> Tensor:
    """See the reference; `into_TC` is contiguous."""
    normed_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format) if into_TC is None else into_TC
    _launch(x_TC, added, weight_C, bias_C, _Into(normed_TC))
    return normed_TC


def norm_of_sum_fp8(
    x_TC: Tensor, added: _Added, weight_C: Tensor, bias_C: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """See the reference."""
    normed_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format)
    values_TC, scale_T1 = _fp8_like(x_TC)
    _launch(x_TC, added, weight_C, bias_C, _Into(values_TC, scale_T1, plain_TC=normed_TC))
    return normed_TC, (values_TC, scale_T1)


def _fp8_like(x_TC: Tensor) -> tuple[Tensor, Tensor]:
    values_TC = torch.empty(x_TC.shape, dtype=torch.float8_e4m3fn, device=x_TC.device)
    return values_TC, torch.empty((*x_TC.shape[:-1], 1), dtype=torch.float32, device=x_TC.device)


def _launch(
    x_TC: Tensor,
    added: _Added,
    weight_C: Tensor,
    bias_C: Tensor,
    into: _Into,
    epsilon: float = EPSILON,
    **options: int,
) -> None:
    x_TC = x_TC.contiguous()
    first_TC, second_TC = (added[i].contiguous() if i < len(added) else x_TC for i in range(2))
    kept_TC = into.plain_TC if into.sum_TC is None else into.sum_TC
    width = x_TC.shape[-1]
    rows, first_rows = x_TC.numel() // width, first_TC.numel() // width
    head, tail = parts(width)
    _add_layer_norm[(rows,)](
        x_TC,
        first_TC,
        second_TC,
        weight_C,
        bias_C,
        x_TC if kept_TC is None else kept_TC,
        into.normed_TC,
        x_TC if into.scale_T1 is None else into.scale_T1,
        0.0 if into.scale is None else into.scale,
        EPSILON=epsilon,
        C=width,
        HEAD=head,
        TAIL=tail,
        ADDED=len(added),
        REPEATED=0 if first_rows == rows else first_rows,
        KEPT="sum" if into.sum_TC is not None else "norm" if into.plain_TC is not None else "",
        FP8="" if into.scale_T1 is None else "by row" if into.scale is None else "given",
        **{"num_warps": warps(rows, width), **options},
    )


@triton.jit
def _add_layer_norm(
    x,
    first,
    second,
    weight,
    bias,
    kept,
    normed,
    scales,
    scale_of_all,
    EPSILON: tl.constexpr,
    C: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    ADDED: tl.constexpr,
    REPEATED: tl.constexpr,
    KEPT: tl.constexpr,
    FP8: tl.constexpr,
):  # one program a row
    row = tl.program_id(0).to(tl.int64)
    start = row * C
    cols = tl.arange(0, HEAD)
    tail_cols = HEAD + tl.arange(0, TAIL)
    inside = tail_cols < C

    head = tl.load(x + start + cols)
    tail = tl.load(x + start + tail_cols, mask=inside, other=0.0)
    if ADDED > 0:
        if REPEATED > 0:
            first += row % REPEATED * C
        else:
            first += start
        head = rounded_sum(head, tl.load(first + cols))
        tail = rounded_sum(tail, tl.load(first + tail_cols, mask=inside, other=0.0))
    if ADDED > 1:
        head = rounded_sum(head, tl.load(second + start + cols))
        tail = rounded_sum(tail, tl.load(second + start + tail_cols, mask=inside, other=0.0))
    if KEPT == "sum":
        tl.store(kept + start + cols, head)
        tl.store(kept + start + tail_cols, tail, mask=inside)

    head = head.to(tl.float32)
    tail = tail.to(tl.float32)
    mean = (tl.sum(head, axis=0) + tl.sum(tail, axis=0)) / C
    head = head - mean
    tail = tl.where(inside, tail - mean, 0.0)
    variance = (tl.sum(head * head, axis=0) + tl.sum(tail * tail, axis=0)) / C
    scale = 1.0 / tl.sqrt(variance + EPSILON)
    head = head * scale * tl.load(weight + cols).to(tl.float32) + tl.load(bias + cols).to(tl.float32)
    tail_weight = tl.load(weight + tail_cols, mask=inside, other=0.0).to(tl.float32)
    tail_bias = tl.load(bias + tail_cols, mask=inside, other=0.0).to(tl.float32)
    tail = tail * scale * tail_weight + tail_bias

    head = head.to(x.dtype.element_ty)
    tail = tail.to(x.dtype.element_ty)
    if KEPT == "norm":
        tl.store(kept + start + cols, head)
        tl.store(kept + start + tail_cols, tail, mask=inside)
    if FP8 == "given":
        head = head.to(tl.float32)
        tail = tail.to(tl.float32)
        store_scaled_fp8(head, tail, scale_of_all, normed, scales, row, C, HEAD, TAIL)
    elif FP8 == "by row":
        store_fp8(head.to(tl.float32), tail.to(tl.float32), normed, scales, row, C, HEAD, TAIL)
    else:
        tl.store(normed + start + cols, head)
        tl.store(normed + start + tail_cols, tail, mask=inside)
