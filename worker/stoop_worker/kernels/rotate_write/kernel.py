# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Normalises and rotates q and k, writes k and v to the pool, and computes GELU, in one launch. Letters: `reference`.

A program takes one part of one row: q, k, v, or a block of fc1's columns.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels import early
from stoop_worker.kernels.paged_attention.decode import takes_every_place
from stoop_worker.kernels.rotate_write.places import HeadNorms, Places
from stoop_worker.kernels.rotate_write.reference import query_heads

__all__ = ["fit", "gelu", "rotate_write", "rotate_write_gelu"]

_MLP_BLOCK = 2048


def rotate_write(
    qkv_TN: Tensor, places: Places, pool: Tensor, *, norms: HeadNorms | None = None, in_line: bool = False
) -> Tensor:
    """Compute `reference.rotate_write`; rows of `qkv_TN` may be strided, their columns are contiguous."""
    heads = query_heads(qkv_TN, pool)
    return _launch(qkv_TN, places, pool, qkv_TN, _Parts(heads, norms=norms, in_line=in_line))


def rotate_write_gelu(
    qkvf_TN: Tensor, places: Places, pool: Tensor, *, out_TM: Tensor, in_line: bool = False
) -> Tensor:
    """Compute `reference.rotate_write_gelu`; rows of `qkvf_TN` and `out_TM` may be strided, columns are contiguous."""
    heads, head_dim = pool.shape[3:]
    columns = qkvf_TN.shape[1] - 3 * heads * head_dim
    return _launch(qkvf_TN, places, pool, out_TM, _Parts(heads, columns=columns, in_line=in_line))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The query heads and the other columns of a row, the norms of its heads, and whether many rows start early."""

    heads: int
    columns: int = 0
    norms: HeadNorms | None = None
    in_line: bool = False


def _launch(rows_TN: Tensor, places: Places, pool: Tensor, out_TM: Tensor, parts: _Parts) -> Tensor:
    key_heads, head_dim = pool.shape[3:]
    positions, table_SF2, norms, heat = places.positions, places.table_SF2, parts.norms, places.heat
    if heat is not None and (places.axis_F is not None or norms is not None or parts.heads != key_heads):
        raise ValueError("a temperature goes with one axis of positions, no norms, and a key head a query head")
    count, frequencies = rows_TN.shape[0], table_SF2.shape[1]
    q_THD = torch.empty((count, parts.heads, head_dim), dtype=rows_TN.dtype, device=rows_TN.device)
    if count == 0:
        return q_THD
    kernel: Any = _rotate_write
    kernel[(count, 3 + triton.cdiv(parts.columns, _MLP_BLOCK))](
        rows_TN,
        positions,
        table_SF2,
        places.slots_T,
        positions if places.axis_F is None else places.axis_F,
        rows_TN if norms is None else norms.q_D,
        rows_TN if norms is None else norms.k_D,
        table_SF2 if heat is None else heat.parts_STX,
        rows_TN if heat is None else heat.alpha_H,
        q_THD,
        pool[0],
        pool[1],
        out_TM,
        rows_TN.stride(0),
        out_TM.stride(0),
        count,
        0.0 if norms is None else norms.epsilon,
        H=parts.heads,
        K=key_heads,
        H_BLOCK=triton.next_power_of_2(parts.heads),
        K_BLOCK=triton.next_power_of_2(key_heads),
        D=head_dim,
        F=frequencies,
        F_BLOCK=triton.next_power_of_2(frequencies),
        REST_BLOCK=triton.next_power_of_2(max(1, head_dim - 2 * frequencies)),
        AXES=0 if places.axis_F is None else positions.shape[1],
        NORMS=norms is not None,
        HEAT=0 if heat is None else len(heat.parts_STX),
        ROUNDED=heat is not None and heat.rounded_positions,
        COLUMNS=parts.columns,
        BLOCK=_MLP_BLOCK,
        LATE=parts.in_line and count > early.MOST_ROWS and not takes_every_place(count, key_heads),
        num_warps=4,
        **early.options(rows_TN.device, count, most=early.MOST_IN_LINE_ROWS if parts.in_line else early.MOST_ROWS),
    )
    return q_THD


@triton.jit
def _rotate_write(
    rows_ptr,
    positions_ptr,
    table_ptr,
    slots_ptr,
    axis_ptr,
    q_norm_ptr,
    k_norm_ptr,
    heat_ptr,
    alpha_ptr,
    q_ptr,
    keys_ptr,
    values_ptr,
    out_ptr,
    row_stride,
    out_stride,
    count,
    epsilon,
    H: tl.constexpr,
    K: tl.constexpr,
    H_BLOCK: tl.constexpr,
    K_BLOCK: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    F_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    AXES: tl.constexpr,
    NORMS: tl.constexpr,
    HEAT: tl.constexpr,
    ROUNDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    LATE: tl.constexpr,
    EARLY: tl.constexpr,
):
    # attention's programs that start while the product before still fills most multiprocessors crowd on the others;
    # if they take every place, they must not find this kernel's programs there
    early.let_next_start(EARLY and not LATE)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    C: tl.constexpr = H * D
    KD: tl.constexpr = K * D
    source_ptr = rows_ptr + row * row_stride
    if part >= 3:
        early.wait(EARLY)
        early.let_next_start(EARLY and LATE)
        gelu(source_ptr + C + 2 * KD, out_ptr + row * out_stride + C, part - 3, COLUMNS, BLOCK)
    else:
        pair = tl.arange(0, F_BLOCK)[None, :]
        if AXES > 0:
            axis = tl.load(axis_ptr + pair, mask=pair < F, other=0)
            position = tl.load(positions_ptr + row * AXES + axis)
            rotation_ptr = table_ptr + position * (2 * F)
        else:
            rotation_ptr = table_ptr + tl.load(positions_ptr + row) * (2 * F)
        cos = tl.load(rotation_ptr + 2 * pair, mask=pair < F, other=0.0)
        sin = tl.load(rotation_ptr + 2 * pair + 1, mask=pair < F, other=0.0)
        slot = tl.load(slots_ptr + row).to(tl.int64)
        early.wait(EARLY)
        early.let_next_start(EARLY and LATE)
        heat = tl.full((H_BLOCK,), 1.0, dtype=tl.float32)
        if HEAT > 0:  # noqa: SIM102 (the inner condition is known on the device alone)
            if part != 1:
                parts_ptr = heat_ptr + row * 2 * H + (part // 2) * H
                term = _position_term(tl.load(positions_ptr + row), alpha_ptr, H, H_BLOCK, ROUNDED)
                heat = _temperature(parts_ptr, count * 2 * H, HEAT, H, H_BLOCK) + term
        if part == 0:
            _rotate(
                source_ptr,
                q_ptr + row * C,
                q_norm_ptr,
                cos,
                sin,
                heat,
                epsilon,
                H,
                H_BLOCK,
                D,
                F,
                F_BLOCK,
                REST_BLOCK,
                NORMS,
                HEAT,
            )
        elif slot >= 0:
            if part == 1:
                _rotate(
                    source_ptr + C,
                    keys_ptr + slot * KD,
                    k_norm_ptr,
                    cos,
                    sin,
                    heat,
                    epsilon,
                    K,
                    K_BLOCK,
                    D,
                    F,
                    F_BLOCK,
                    REST_BLOCK,
                    NORMS,
                    0,
                )
            else:
                value_ptr = source_ptr + C + KD
                target_ptr = values_ptr + slot * KD
                _copy(value_ptr, target_ptr, heat, K, K_BLOCK, D, 0, 2 * F, 2 * F_BLOCK, HEAT)
                _copy(value_ptr, target_ptr, heat, K, K_BLOCK, D, 2 * F, D - 2 * F, REST_BLOCK, HEAT)


@triton.jit
def _temperature(parts_ptr, part_stride, PARTS: tl.constexpr, H: tl.constexpr, H_BLOCK: tl.constexpr):
    """Return tanh of the sum of the parts, for each head."""
    head = tl.arange(0, H_BLOCK)
    total = tl.zeros((H_BLOCK,), dtype=tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(parts_ptr + part * part_stride + head, mask=head < H, other=0.0)
    return 2.0 * tl.sigmoid(2.0 * total) - 1.0


@triton.jit
def _position_term(position, alpha_ptr, H: tl.constexpr, H_BLOCK: tl.constexpr, ROUNDED: tl.constexpr):
    """Return 1 + sigmoid(alpha ln(position + 1)) - 1/2 for each head; each step is rounded to bfloat16 if ROUNDED."""
    head = tl.arange(0, H_BLOCK)
    alpha = tl.load(alpha_ptr + head, mask=head < H, other=0.0).to(tl.float32)
    log = tl.log(_step(_step(position.to(tl.float32), ROUNDED) + 1.0, ROUNDED))
    share = _step(tl.sigmoid(_step(_step(log, ROUNDED) * _step(alpha, ROUNDED), ROUNDED)), ROUNDED)
    return _step(1.0 + _step(share - 0.5, ROUNDED), ROUNDED)


@triton.jit
def _step(x, ROUNDED: tl.constexpr):
    return x.to(tl.bfloat16).to(tl.float32) if ROUNDED else x


@triton.jit
def _rotate(
    source_ptr,
    target_ptr,
    norm_ptr,
    cos,
    sin,
    heat,
    epsilon,
    H: tl.constexpr,
    H_BLOCK: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    F_BLOCK: tl.constexpr,
    REST_BLOCK: tl.constexpr,
    NORMS: tl.constexpr,
    HEAT: tl.constexpr,
):
    """Rotate the first 2 F channels of H heads, after their RMS norm if NORMS, and times their heat if HEAT."""
    head = tl.arange(0, H_BLOCK)[:, None]
    pair = tl.arange(0, F_BLOCK)[None, :]
    inside = (head < H) & (pair < F)
    real = tl.load(source_ptr + head * D + pair, mask=inside, other=0.0).to(tl.float32)
    imaginary = tl.load(source_ptr + head * D + F + pair, mask=inside, other=0.0).to(tl.float32)
    if NORMS:
        squares = tl.sum(real * real + imaginary * imaginary, 1)
        if D > 2 * F:
            channel = 2 * F + tl.arange(0, REST_BLOCK)[None, :]
            rest = tl.load(source_ptr + head * D + channel, mask=(head < H) & (channel < D), other=0.0).to(tl.float32)
            squares += tl.sum(rest * rest, 1)
        scale = (1.0 / tl.sqrt(squares / D + epsilon))[:, None]
        real = _normed(real, scale, norm_ptr + pair, pair < F, source_ptr)
        imaginary = _normed(imaginary, scale, norm_ptr + F + pair, pair < F, source_ptr)
        if D > 2 * F:
            rest = _normed(rest, scale, norm_ptr + channel, channel < D, source_ptr)
            tl.store(target_ptr + head * D + channel, fit(rest, target_ptr), mask=(head < H) & (channel < D))
    if HEAT > 0:
        real *= heat[:, None]
        imaginary *= heat[:, None]
    rotated = tl.interleave(real * cos - imaginary * sin, real * sin + imaginary * cos)
    rotated = rotated.to(source_ptr.dtype.element_ty)
    channel = tl.arange(0, 2 * F_BLOCK)[None, :]
    tl.store(target_ptr + head * D + channel, fit(rotated, target_ptr), mask=(head < H) & (channel < 2 * F))
    if not NORMS:
        _copy(source_ptr, target_ptr, heat, H, H_BLOCK, D, 2 * F, D - 2 * F, REST_BLOCK, HEAT)


@triton.jit
def _normed(x, scale, weight_ptr, inside, source_ptr):
    """Return channels of every head times the head's scale and their weights, rounded to the rows' dtype."""
    weight = tl.load(weight_ptr, mask=inside, other=0.0).to(tl.float32)
    return (x * scale * weight).to(source_ptr.dtype.element_ty).to(tl.float32)


@triton.jit
def _copy(
    source_ptr,
    target_ptr,
    heat,
    H: tl.constexpr,
    H_BLOCK: tl.constexpr,
    D: tl.constexpr,
    FIRST: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
    HEAT: tl.constexpr,
):
    """Copy COUNT channels of every head, starting at channel FIRST, times their heat if HEAT."""
    if COUNT > 0:
        head = tl.arange(0, H_BLOCK)[:, None]
        channel = tl.arange(0, BLOCK)[None, :]
        place = head * D + FIRST + channel
        inside = (head < H) & (channel < COUNT)
        x = tl.load(source_ptr + place, mask=inside, other=0.0)
        if HEAT > 0:
            x = (x.to(tl.float32) * heat[:, None]).to(source_ptr.dtype.element_ty)
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
    """Return x in the target's dtype, clamped to the range of float8_e4m3fn if that is the dtype."""
    if target_ptr.dtype.element_ty == tl.float8e4nv:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -448.0), 448.0)
    return x.to(target_ptr.dtype.element_ty)
