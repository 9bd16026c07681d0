# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""One launch: rotate q and k, write k and v to the pool, and GELU beside it. Letters as in `reference`.

A program takes one part of one row: q, k, v, or a block of fc1's columns.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from worker.kernels import early

__all__ = ["fit", "gelu", "rotate_and_write", "rotate_write_gelu"]

_MLP_BLOCK = 2048


def rotate_and_write(
    qkv_TC: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, heads: int
) -> Tensor:
    """As `reference.rotate_and_write`; rows of `qkv_TC` may lie apart, their columns may not."""
    if heads != pool.shape[3]:
        raise ValueError(f"{heads} heads were asked for, but the pool has {pool.shape[3]}")
    return _launch(qkv_TC, (positions_T, table_SF2, slots_T), pool, qkv_TC, columns=0)


def rotate_write_gelu(
    qkvf_TN: Tensor, positions_T: Tensor, table_SF2: Tensor, pool: Tensor, slots_T: Tensor, *, out_TM: Tensor
) -> Tensor:
    """As `reference.rotate_write_gelu`; rows of `qkvf_TN` and `out_TM` may lie apart, their columns may not."""
    columns = qkvf_TN.shape[1] - 3 * pool.shape[3] * pool.shape[4]
    return _launch(qkvf_TN, (positions_T, table_SF2, slots_T), pool, out_TM, columns=columns)


def _launch(
    rows_TN: Tensor, places: tuple[Tensor, Tensor, Tensor], pool: Tensor, out_TM: Tensor, *, columns: int
) -> Tensor:
    positions_T, table_SF2, slots_T = places
    heads, head_dim = pool.shape[3:]
    count, frequencies = rows_TN.shape[0], table_SF2.shape[1]
    q_THD = torch.empty((count, heads, head_dim), dtype=rows_TN.dtype, device=rows_TN.device)
    if count == 0:
        return q_THD
    kernel: Any = _rotate_write
    kernel[(count, 3 + triton.cdiv(columns, _MLP_BLOCK))](
        rows_TN,
        positions_T,
        table_SF2,
        slots_T,
        q_THD,
        pool[0],
        pool[1],
        out_TM,
        rows_TN.stride(0),
        out_TM.stride(0),
        H=heads,
        H_BLOCK=triton.next_power_of_2(heads),
        D=head_dim,
        F=frequencies,
        F_BLOCK=triton.next_power_of_2(frequencies),
        REST_BLOCK=triton.next_power_of_2(max(1, head_dim - 2 * frequencies)),
        COLUMNS=columns,
        BLOCK=_MLP_BLOCK,
        num_warps=4,
        **early.options(rows_TN.device, count),
    )
    return q_THD


@triton.jit
def _rotate_write(
    rows_ptr,
    positions_ptr,
    table_ptr,
    slots_ptr,
    q_ptr,
    keys_ptr,
    values_ptr,
    out_ptr,
    row_stride,
    out_stride,
    H: tl.constexpr,
    H_BLOCK: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    F_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):
    early.let_next_start(EARLY)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    C: tl.constexpr = H * D
    source_ptr = rows_ptr + row * row_stride
    if part >= 3:
        early.wait(EARLY)
        gelu(source_ptr + 3 * C, out_ptr + row * out_stride + C, part - 3, COLUMNS, BLOCK)
    else:
        pair = tl.arange(0, F_BLOCK)[None, :]
        turn_ptr = table_ptr + tl.load(positions_ptr + row) * (2 * F)
        cos = tl.load(turn_ptr + 2 * pair, mask=pair < F, other=0.0)
        sin = tl.load(turn_ptr + 2 * pair + 1, mask=pair < F, other=0.0)
        slot = tl.load(slots_ptr + row).to(tl.int64)
        early.wait(EARLY)
        if part == 0:
            _rotate(source_ptr, q_ptr + row * C, cos, sin, H, H_BLOCK, D, F, F_BLOCK, REST_BLOCK)
        elif slot >= 0:
            if part == 1:
                _rotate(source_ptr + C, keys_ptr + slot * C, cos, sin, H, H_BLOCK, D, F, F_BLOCK, REST_BLOCK)
            else:
                _copy(source_ptr + 2 * C, values_ptr + slot * C, H, H_BLOCK, D, 0, 2 * F, 2 * F_BLOCK)
                _copy(source_ptr + 2 * C, values_ptr + slot * C, H, H_BLOCK, D, 2 * F, D - 2 * F, REST_BLOCK)


@triton.jit
def _rotate(
    source_ptr,
    target_ptr,
    cos,
    sin,
    H: tl.constexpr,
    H_BLOCK: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    F_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
):
    head = tl.arange(0, H_BLOCK)[:, None]
    pair = tl.arange(0, F_BLOCK)[None, :]
    inside = (head < H) & (pair < F)
    real = tl.load(source_ptr + head * D + pair, mask=inside, other=0.0).to(tl.float32)
    imaginary = tl.load(source_ptr + head * D + F + pair, mask=inside, other=0.0).to(tl.float32)
    turned = tl.interleave(real * cos - imaginary * sin, real * sin + imaginary * cos)
    turned = turned.to(source_ptr.dtype.element_ty)
    channel = tl.arange(0, 2 * F_BLOCK)[None, :]
    tl.store(target_ptr + head * D + channel, fit(turned, target_ptr), mask=(head < H) & (channel < 2 * F))
    _copy(source_ptr, target_ptr, H, H_BLOCK, D, 2 * F, D - 2 * F, REST_BLOCK)


@triton.jit
def _copy(
    source_ptr,
    target_ptr,
    H: tl.constexpr,
    H_BLOCK: tl.constexpr,
    D: tl.constexpr,
    FIRST: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy COUNT channels of every head, from channel FIRST on."""
    if COUNT > 0:
        head = tl.arange(0, H_BLOCK)[:, None]
        channel = tl.arange(0, BLOCK)[None, :]
        place = head * D + FIRST + channel
        inside = (head < H) & (channel < COUNT)
        x = tl.load(source_ptr + place, mask=inside, other=0.0)
        tl.store(target_ptr + place, fit(x, target_ptr), mask=inside)


@triton.jit
def gelu(source_ptr, target_ptr, block, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the tanh-GELU of one block of a row's columns."""
    column = block * BLOCK + tl.arange(0, BLOCK)
    inside = column < COLUMNS
    x = tl.load(source_ptr + column, mask=inside, other=0.0).to(tl.float32)
    # (1 + tanh z) / 2 is sigmoid(2 z); the factor is 2 sqrt(2 / pi)
    y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(target_ptr + column, y.to(target_ptr.dtype.element_ty), mask=inside)


@triton.jit
def fit(x, target_ptr):
    """Return x in the target's dtype; what float8_e4m3fn cannot hold becomes its largest."""
    if target_ptr.dtype.element_ty == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -448.0), 448.0)
    return x.to(target_ptr.dtype.element_ty)
