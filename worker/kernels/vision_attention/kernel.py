# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Full attention among the patches of a crop, for head dims from 65 to 80. N crops, P patches, H heads, D head dim.

A head dim of 72 is no power of two, and padding it to 128 would waste nearly half of the products: it is held as 64
columns and a narrow rest of 16.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["Shape", "takes", "vision_attention"]

_WIDE, _NARROW = 64, 16


@dataclass(frozen=True, slots=True)
class Shape:
    """How the work is cut: query rows and keys a block, warps a program, blocks of keys in flight."""

    rows: int = 64
    keys: int = 64
    warps: int = 4
    stages: int = 3


_SHAPE = Shape()


def takes(q_NPHD: Tensor) -> bool:
    """Say whether the kernel can compute this: 16-bit, and a head dim whose rest fits."""
    return q_NPHD.dtype in (torch.bfloat16, torch.float16) and _WIDE < q_NPHD.shape[-1] <= _WIDE + _NARROW


def vision_attention(q_NPHD: Tensor, k_NPHD: Tensor, v_NPHD: Tensor, *, shape: Shape = _SHAPE) -> Tensor:
    """See the reference. q, k and v have the same strides, and D is contiguous: views of one tensor, as a rule."""
    if len({x.stride() for x in (q_NPHD, k_NPHD, v_NPHD)}) > 1 or q_NPHD.stride(-1) != 1:
        q_NPHD, k_NPHD, v_NPHD = (x.contiguous() for x in (q_NPHD, k_NPHD, v_NPHD))
    crops, patches, heads, dim = q_NPHD.shape
    o_NPHD = torch.empty((crops, patches, heads, dim), dtype=q_NPHD.dtype, device=q_NPHD.device)
    _attend[(triton.cdiv(patches, shape.rows), heads, crops)](
        q_NPHD,
        k_NPHD,
        v_NPHD,
        o_NPHD,
        dim**-0.5 * 1.4426950408889634,
        P=patches,
        D=dim,
        CROP=q_NPHD.stride(0),
        PATCH=q_NPHD.stride(1),
        HEAD=q_NPHD.stride(2),
        OUT_PATCH=heads * dim,
        ROWS=shape.rows,
        KEYS=shape.keys,
        WIDE=_WIDE,
        NARROW=_NARROW,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    return o_NPHD


@triton.jit
def _attend(
    q,
    k,
    v,
    o,
    scale,
    P: tl.constexpr,
    D: tl.constexpr,
    CROP: tl.constexpr,
    PATCH: tl.constexpr,
    HEAD: tl.constexpr,
    OUT_PATCH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WIDE: tl.constexpr,
    NARROW: tl.constexpr,
):  # one program a block of query rows of one head; `scale` has log2(e) in it, for exp2
    head = tl.program_id(1)
    crop = tl.program_id(2).to(tl.int64)
    start = crop * CROP + head * HEAD
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wide = tl.arange(0, WIDE)
    narrow = WIDE + tl.arange(0, NARROW)
    inside = rows[:, None] < P
    q_wide = tl.load(q + start + rows[:, None] * PATCH + wide[None, :], mask=inside, other=0.0)
    q_narrow = tl.load(
        q + start + rows[:, None] * PATCH + narrow[None, :], mask=inside & (narrow[None, :] < D), other=0.0
    )

    largest = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    o_wide = tl.zeros([ROWS, WIDE], tl.float32)
    o_narrow = tl.zeros([ROWS, NARROW], tl.float32)
    full: tl.constexpr = P // KEYS * KEYS
    for first in range(0, full, KEYS):
        largest, total, o_wide, o_narrow = _block(
            q_wide, q_narrow, k + start, v + start, first, scale, largest, total, o_wide, o_narrow,
            P, D, PATCH, KEYS, WIDE, NARROW, False,
        )  # fmt: skip
    if full < P:
        largest, total, o_wide, o_narrow = _block(
            q_wide, q_narrow, k + start, v + start, full, scale, largest, total, o_wide, o_narrow,
            P, D, PATCH, KEYS, WIDE, NARROW, True,
        )  # fmt: skip

    into = o + (crop * P + rows[:, None]) * OUT_PATCH + head * D
    share = (1.0 / total)[:, None]
    tl.store(into + wide[None, :], (o_wide * share).to(o.dtype.element_ty), mask=inside)
    tl.store(
        into + narrow[None, :],
        (o_narrow * share).to(o.dtype.element_ty),
        mask=inside & (narrow[None, :] < D),
    )


@triton.jit
def _block(
    q_wide, q_narrow, k, v, first, scale, largest, total, o_wide, o_narrow,
    P: tl.constexpr, D: tl.constexpr, PATCH: tl.constexpr, KEYS: tl.constexpr,
    WIDE: tl.constexpr, NARROW: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    # take one block of keys and values in; only the last may have less than KEYS
    keys = first + tl.arange(0, KEYS)
    wide = keys[:, None] * PATCH + tl.arange(0, WIDE)[None, :]
    narrow_cols = WIDE + tl.arange(0, NARROW)
    narrow = keys[:, None] * PATCH + narrow_cols[None, :]
    narrow_inside = narrow_cols[None, :] < D
    if TAIL:
        inside = keys[:, None] < P
        k_wide = tl.load(k + wide, mask=inside, other=0.0)
        k_narrow = tl.load(k + narrow, mask=inside & narrow_inside, other=0.0)
        v_wide = tl.load(v + wide, mask=inside, other=0.0)
        v_narrow = tl.load(v + narrow, mask=inside & narrow_inside, other=0.0)
    else:
        k_wide = tl.load(k + wide)
        k_narrow = tl.load(k + narrow, mask=narrow_inside, other=0.0)
        v_wide = tl.load(v + wide)
        v_narrow = tl.load(v + narrow, mask=narrow_inside, other=0.0)
    scores = tl.dot(q_wide, tl.trans(k_wide))
    scores = tl.dot(q_narrow, tl.trans(k_narrow), scores)
    if TAIL:
        scores = tl.where(keys[None, :] < P, scores, -float("inf"))
    raised = tl.maximum(largest, tl.max(scores, axis=1) * scale)
    weights = tl.exp2(scores * scale - raised[:, None])
    kept = tl.exp2(largest - raised)
    total = total * kept + tl.sum(weights, axis=1)
    weights = weights.to(v_wide.dtype)
    o_wide = tl.dot(weights, v_wide, o_wide * kept[:, None])
    o_narrow = tl.dot(weights, v_narrow, o_narrow * kept[:, None])
    return raised, total, o_wide, o_narrow
