"""Attention over a paged KV pool.

B sequences, T query rows packed over sequences, S key positions, H query heads, K key heads, D head dim, P pages of
the longest sequence. One layer's pool is (2, pages, page size, K, D): keys, then values. A slot is page * page size +
offset. Query head h reads key head h // G, where G = H / K.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.paged_attention.layout import PagedLayout

__all__ = ["paged_attention", "prefix_mask", "write_all_kv", "write_kv"]


def write_kv(k_TKD: Tensor, v_TKD: Tensor, pool: Tensor, slots_T: Tensor) -> None:
    """Store the keys and values of T tokens in their slots (int64) of one layer's pool; a slot below 0 stores nothing.

    A float8_e4m3fn pool stores the values unscaled, clamped to its range.
    """
    kept_N = (slots_T >= 0).nonzero()[:, 0]
    write_all_kv(k_TKD[kept_N], v_TKD[kept_N], pool, slots_T[kept_N])


def write_all_kv(k_TKD: Tensor, v_TKD: Tensor, pool: Tensor, slots_T: Tensor) -> None:
    """Store keys and values like `write_kv`, for slots that are never below 0, without waiting for the device."""
    for slots, x_TKD in zip(_slots(pool), (k_TKD, v_TKD), strict=True):
        slots.index_copy_(0, slots_T, _stored(x_TKD, pool.dtype))


def paged_attention(
    q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float | None = None, out_TM: Tensor | None = None
) -> Tensor:
    """Let every query row attend to its sequence's positions in the pool; returns o_THD.

    `scale` multiplies the products of queries and keys; None means 1 / sqrt(D). If `out_TM` is given, its first H D
    columns receive the output and are returned as a view; its other columns stay.

    Row i sees position j if j <= i, or if both lie in the prefix. Slots that hold no position of the sequence never
    affect the output, whatever they contain. Nothing waits for the device.
    """
    o_THD = _attend(q_THD, pool, layout, scale)
    if out_TM is None:
        return o_THD
    part_TC = out_TM[:, : o_THD.shape[1] * o_THD.shape[2]]
    part_TC.copy_(o_THD.flatten(1))
    return part_TC.view(o_THD.shape)


def _attend(q_THD: Tensor, pool: Tensor, layout: PagedLayout, scale: float | None) -> Tensor:
    if q_THD.shape[0] == layout.context_lens_B.shape[0]:
        return _decode(q_THD, pool, layout, scale)
    bounds = pairwise(layout.cu_seqlens)
    rows = zip(bounds, layout.page_table_BP, layout.context_lens, layout.prefix_lens, strict=True)
    return torch.cat(
        [
            _prefill(q_THD[start:end], _gather(pool, pages_P, context_len).to(q_THD.dtype), prefix_len, scale)
            for (start, end), pages_P, context_len, prefix_len in rows
        ]
    )


def prefix_mask(q_len: int, context_len: int, prefix_len: int, device: torch.device) -> Tensor:
    """Return (q_len, context_len) bool, True where the last `q_len` of `context_len` positions may see a position."""
    key_S = torch.arange(context_len, device=device)
    row_T1 = key_S[context_len - q_len :, None]
    return (key_S <= row_T1) | ((row_T1 < prefix_len) & (key_S < prefix_len))


def _gather(pool: Tensor, pages_P: Tensor, context_len: int) -> Tensor:
    used = -(-context_len // pool.shape[2])
    pages = _bits(pool)[:, pages_P[:used].long()]
    return pages.flatten(1, 2)[:, :context_len].view(pool.dtype)


def _prefill(q_THD: Tensor, kv_2SKD: Tensor, prefix_len: int, scale: float | None) -> Tensor:
    q_len, context_len = q_THD.shape[0], kv_2SKD.shape[1]
    sees_all = q_len == 1 or context_len <= prefix_len
    causal = q_len == context_len and prefix_len <= 1
    mask_TS = None if sees_all or causal else prefix_mask(q_len, context_len, prefix_len, q_THD.device)
    k_1KSD, v_1KSD = kv_2SKD.transpose(1, 2)[:, None]
    o_1HTD = functional.scaled_dot_product_attention(
        q_THD.transpose(0, 1)[None],
        k_1KSD,
        v_1KSD,
        attn_mask=mask_TS,
        is_causal=causal and not sees_all,
        scale=scale,
        enable_gqa=q_THD.shape[1] != kv_2SKD.shape[2],
    )
    return o_1HTD[0].transpose(0, 1)


def _decode(q_BHD: Tensor, pool: Tensor, layout: PagedLayout, scale: float | None) -> Tensor:
    contexts_B1 = layout.context_lens_B[:, None]
    padding_B1 = contexts_B1 == 0
    position_S = torch.arange(layout.page_table_BP.shape[1] * layout.page_size, device=q_BHD.device)
    seen_BS = position_S < contexts_B1
    # a position beyond the context may be NaN, which a mask does not undo: the first position replaces it
    read_BS = torch.where(seen_BS, position_S, 0)
    pages_BP = torch.where(padding_B1, 0, layout.page_table_BP).long()
    slots_BS = pages_BP.gather(1, read_BS // layout.page_size) * layout.page_size + read_BS % layout.page_size
    k_BKSD, v_BKSD = (kept[slots_BS].view(pool.dtype).to(q_BHD.dtype).transpose(1, 2) for kept in _slots(pool))
    o_BH1D = functional.scaled_dot_product_attention(
        q_BHD[:, :, None],
        k_BKSD,
        v_BKSD,
        attn_mask=(seen_BS | padding_B1)[:, None, None],
        scale=scale,
        enable_gqa=q_BHD.shape[1] != pool.shape[3],
    )
    return torch.where(padding_B1[:, :, None], 0, o_BH1D[:, :, 0])


def _slots(pool: Tensor) -> tuple[Tensor, Tensor]:
    """Return a pool's keys and values by slot, as `_bits`; they are views, so writes go to the pool."""
    keys, values = _bits(pool).view(2, -1, *pool.shape[3:])
    return keys, values


def _stored(x_TKD: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float8_e4m3fn:
        largest = torch.finfo(dtype).max
        x_TKD = x_TKD.clamp(-largest, largest)
    return _bits(x_TKD.to(dtype))


def _bits(x: Tensor) -> Tensor:
    # torch gathers and scatters bytes, but not float8
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x
