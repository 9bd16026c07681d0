# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""RMS norm in one pass, with the sums before it. T rows, C model dim."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.fp8.rows import parts, rounded_sum, warps

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_add_rms_norm"]


def rms_norm(x_TC: Tensor, weight_C: Tensor, *, epsilon: float, dtype: torch.dtype | None = None) -> Tensor:
    """See the reference."""
    normed_TC = torch.empty_like(x_TC, memory_format=torch.contiguous_format, dtype=dtype)
    _launch(x_TC, (), weight_C, (x_TC, normed_TC), epsilon)
    return normed_TC


def add_rms_norm(
    x_TC: Tensor, added: tuple[Tensor, ...], weight_C: Tensor, *, epsilon: float, row_warps: int | None = None
) -> tuple[Tensor, Tensor]:
    """See the reference; `row_warps` overrides the number of warps that share a row."""
    sum_TC, normed_TC = (torch.empty_like(x_TC, memory_format=torch.contiguous_format) for _ in range(2))
    _launch(x_TC, added, weight_C, (sum_TC, normed_TC), epsilon, row_warps)
    return sum_TC, normed_TC


def rms_norm_add_rms_norm(
    x_TC: Tensor, added_TC: Tensor, weights: tuple[Tensor, Tensor], *, epsilon: float
) -> tuple[Tensor, Tensor]:
    """See the reference."""
    sum_TC, normed_TC = (torch.empty_like(x_TC, memory_format=torch.contiguous_format) for _ in range(2))
    width = x_TC.shape[-1]
    rows = x_TC.numel() // width
    if rows:
        kernel: Any = _rms_norm_add_rms_norm
        kernel[(rows,)](
            x_TC.contiguous(),
            added_TC.contiguous(),
            *weights,
            sum_TC,
            normed_TC,
            epsilon,
            C=width,
            WIDTH=triton.next_power_of_2(width),
            num_warps=warps(rows, width),
            **early.options(x_TC.device, rows),
        )
    return sum_TC, normed_TC


def _launch(
    x_TC: Tensor,
    added: tuple[Tensor, ...],
    weight_C: Tensor,
    into: tuple[Tensor, Tensor],
    epsilon: float,
    row_warps: int | None = None,
) -> None:
    x_TC = x_TC.contiguous()
    first_TC, second_TC = (added[i].contiguous() if i < len(added) else x_TC for i in range(2))
    width = x_TC.shape[-1]
    rows = x_TC.numel() // width
    if rows == 0:
        return
    head, tail = parts(width)
    kernel: Any = _add_rms_norm
    kernel[(rows,)](
        x_TC,
        first_TC,
        second_TC,
        weight_C,
        *into,
        epsilon,
        C=width,
        HEAD=head,
        TAIL=tail,
        ADDED=len(added),
        num_warps=row_warps or warps(rows, width),
        **early.options(x_TC.device, rows),
    )


@triton.jit
def _add_rms_norm(
    x,
    first,
    second,
    weight,
    summed,
    normed,
    epsilon,
    C: tl.constexpr,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    ADDED: tl.constexpr,
    EARLY: tl.constexpr,
):  # one program a row
    early.let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    start = row * C
    cols = tl.arange(0, HEAD)
    tail_cols = HEAD + tl.arange(0, TAIL)
    inside = tail_cols < C
    head_weight = tl.load(weight + cols).to(tl.float32)
    tail_weight = tl.load(weight + tail_cols, mask=inside, other=0.0).to(tl.float32)
    early.wait(EARLY)

    head = tl.load(x + start + cols)
    tail = tl.load(x + start + tail_cols, mask=inside, other=0.0)
    if ADDED > 0:
        head = rounded_sum(head, tl.load(first + start + cols))
        tail = rounded_sum(tail, tl.load(first + start + tail_cols, mask=inside, other=0.0))
    if ADDED > 1:
        head = rounded_sum(head, tl.load(second + start + cols))
        tail = rounded_sum(tail, tl.load(second + start + tail_cols, mask=inside, other=0.0))
    if ADDED > 0:
        tl.store(summed + start + cols, head)
        tl.store(summed + start + tail_cols, tail, mask=inside)

    head = head.to(tl.float32)
    tail = tail.to(tl.float32)
    square = (tl.sum(head * head, axis=0) + tl.sum(tail * tail, axis=0)) / C
    scale = 1.0 / tl.sqrt(square + epsilon)
    dtype = normed.dtype.element_ty
    tl.store(normed + start + cols, (head * scale * head_weight).to(dtype))
    tl.store(normed + start + tail_cols, (tail * scale * tail_weight).to(dtype), mask=inside)


@triton.jit
def _rms_norm_add_rms_norm(
    x,
    added,
    first_weight,
    second_weight,
    summed,
    normed,
    epsilon,
    C: tl.constexpr,
    WIDTH: tl.constexpr,
    EARLY: tl.constexpr,
):  # one program a row
    early.let_next_start(EARLY)
    start = tl.program_id(0).to(tl.int64) * C
    cols = tl.arange(0, WIDTH)
    inside = cols < C
    first = tl.load(first_weight + cols, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(second_weight + cols, mask=inside, other=0.0).to(tl.float32)
    early.wait(EARLY)
    row = tl.load(x + start + cols, mask=inside, other=0.0)
    other = tl.load(added + start + cols, mask=inside, other=0.0).to(tl.float32)
    other = other / tl.sqrt(tl.sum(other * other, axis=0) / C + epsilon) * first
    total = rounded_sum(row, other.to(row.dtype))
    tl.store(summed + start + cols, total, mask=inside)
    total = total.to(tl.float32)
    total = total / tl.sqrt(tl.sum(total * total, axis=0) / C + epsilon) * second
    tl.store(normed + start + cols, total.to(row.dtype), mask=inside)
