# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Rotation of queries and keys in one pass. Letters as in `reference`; a program takes all heads of some rows."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

__all__ = ["rotate_heads"]

_VALUES = 4096  # pairs of a program


def rotate_heads(qkv_N3HD: Tensor, rotations_NF2: Tensor) -> None:
    """Compute `reference.rotate_heads`; both tensors are contiguous."""
    count, _, heads, channels = qkv_N3HD.shape
    assert qkv_N3HD.is_contiguous() and rotations_NF2.is_contiguous()
    pairs = 2 * heads * channels // 2  # of queries and keys
    rows = max(1, _VALUES // triton.next_power_of_2(pairs))
    if not count:
        return
    kernel: Any = _rotate
    kernel[(triton.cdiv(count, rows),)](
        qkv_N3HD,
        rotations_NF2,
        count,
        PAIRS=pairs,
        F=channels // 2,
        ROWS=rows,
        BLOCK=triton.next_power_of_2(pairs),
        num_warps=8,
    )


# the number of rows differs from image to image, so its divisibility must not trigger a recompilation
@triton.jit(do_not_specialize=["count"])
def _rotate(qkv, rotations, count, PAIRS: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    inside = (row < count) & (pair < PAIRS)
    frequency = pair % F
    # a row has three times as many heads as queries or keys alone
    one_at = qkv + row.to(tl.int64) * (3 * PAIRS) + pair // F * (2 * F) + frequency
    angle_at = rotations + 2 * (row * F + frequency)
    cos = tl.load(angle_at, mask=inside, other=0.0)
    sin = tl.load(angle_at + 1, mask=inside, other=0.0)
    one = tl.load(one_at, mask=inside, other=0.0).to(tl.float32)
    two = tl.load(one_at + F, mask=inside, other=0.0).to(tl.float32)
    tl.store(one_at, (one * cos - two * sin).to(qkv.dtype.element_ty), mask=inside)
    tl.store(one_at + F, (two * cos + one * sin).to(qkv.dtype.element_ty), mask=inside)
