# mypy: disable-error-code="import-untyped, no-untyped-call, no-untyped-def, untyped-decorator"
# ruff: noqa: PLR0913
"""Attention within packed texts in one launch. Letters as in `reference`.

A program takes one head and some rows of one text, and reads the keys and values of that text in blocks, with the
running softmax of FlashAttention (Dao et al., 2022, https://arxiv.org/abs/2205.14135).
"""

from math import log2
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from stoop_worker.kernels.packed_attention.reference import Texts

__all__ = ["Tiles", "attend", "packed_attention"]

_LOG2_E = log2(2.718281828459045)


class Tiles(NamedTuple):
    """The rows of a program, the keys of a block, the warps of a program, and the stages of its loop."""

    rows: int
    keys: int
    warps: int
    stages: int


_USUAL = Tiles(64, 64, 4, 3)  # the fastest of four on an H200, for heads of 64 channels


def packed_attention(
    q_THD: Tensor,
    k_TKD: Tensor,
    v_TKD: Tensor,
    texts: Texts,
    *,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Compute the reference; rows of no text stay undefined. The channels of a head are contiguous."""
    return attend((q_THD, k_TKD, v_TKD), texts, _USUAL, scale=scale, window=window)


def attend(
    rows: tuple[Tensor, Tensor, Tensor], texts: Texts, tiles: Tiles, *, scale: float, window: int | None
) -> Tensor:
    """Compute `packed_attention` of queries, keys and values in tiles of these sizes."""
    q_THD, k_TKD, v_TKD = rows
    tokens, heads, dim = q_THD.shape
    out_THD = torch.empty((tokens, heads, dim), dtype=q_THD.dtype, device=q_THD.device)
    kernel: Any = _attend
    kernel[(triton.cdiv(texts.longest, tiles.rows), heads, len(texts.starts_N1) - 1)](
        q_THD,
        k_TKD,
        v_TKD,
        out_THD,
        texts.starts_N1,
        *q_THD.stride()[:2],
        *k_TKD.stride()[:2],
        *v_TKD.stride()[:2],
        scale * _LOG2_E,
        HEADS=heads,
        GROUP=heads // k_TKD.shape[1],
        D=dim,
        WIDTH=max(16, triton.next_power_of_2(dim)),
        ROWS=tiles.rows,
        KEYS=tiles.keys,
        WINDOW=-1 if window is None or texts.longest <= window + 1 else window,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )
    return out_THD


@triton.jit
def _attend(
    q,
    k,
    v,
    out,
    starts,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    head = tl.program_id(1)
    begin = tl.load(starts + tl.program_id(2))
    length = tl.load(starts + tl.program_id(2) + 1) - begin
    first = tl.program_id(0) * ROWS
    if first >= length:
        return
    begin = begin.to(tl.int64)
    rows = first + tl.arange(0, ROWS)
    channels = tl.arange(0, WIDTH)
    real = channels < D
    queries = tl.load(
        q + (begin + rows)[:, None] * q_row + head * q_head + channels, mask=(rows < length)[:, None] & real, other=0.0
    )
    keys_here = k + begin * k_row + (head // GROUP) * k_head
    values_here = v + begin * v_row + (head // GROUP) * v_head
    least, most = 0, length
    if WINDOW >= 0:
        least = tl.maximum(0, first - WINDOW) // KEYS * KEYS
        most = tl.minimum(length, first + ROWS + WINDOW)

    largest = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(least, most, KEYS):
        columns = start + tl.arange(0, KEYS)
        inside = columns < length
        keys = tl.load(
            keys_here + columns[None, :] * k_row + channels[:, None], mask=inside[None, :] & real[:, None], other=0.0
        )
        scores = tl.dot(queries, keys) * scale
        seen = inside[None, :]
        if WINDOW >= 0:
            seen = seen & (tl.abs(rows[:, None] - columns[None, :]) <= WINDOW)
        scores = tl.where(seen, scores, -1e30)
        # a row that has seen no key yet counts 1 for each, which its first key takes away again
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - larger[:, None])
        kept = tl.exp2(largest - larger)
        total = total * kept + tl.sum(weights, axis=1)
        values = tl.load(values_here + columns[:, None] * v_row + channels, mask=inside[:, None] & real, other=0.0)
        mixed = tl.dot(weights.to(values.dtype), values, mixed * kept[:, None])
        largest = larger
    mixed = mixed / total[:, None]
    places = (begin + rows)[:, None] * (HEADS * D) + head * D + channels
    tl.store(out + places, mixed.to(out.dtype.element_ty), mask=(rows < length)[:, None] & real)
