"""Attention over a paged KV pool.

B sequences, T query rows packed over sequences, S key positions, H heads, D head dim, P pages of the longest sequence.
One layer's pool is (2, pages, page size, H, D): keys, then values. A slot is page * page size + offset.
"""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from worker.kernels.paged_attention.layout import PagedLayout

__all__ = ["paged_attention", "prefix_mask", "write_kv"]


def write_kv(k_THD: Tensor, v_THD: Tensor, pool: Tensor, slots_T: Tensor) -> None:
    """Store the keys and values of T tokens in their slots (int64) of one layer's pool."""
    keys, values = _slots(pool)
    keys.index_copy_(0, slots_T, k_THD)
    values.index_copy_(0, slots_T, v_THD)


def paged_attention(q_THD: Tensor, pool: Tensor, layout: PagedLayout) -> Tensor:
    """Let every query row attend to its sequence's positions in the pool; returns o_THD.

    Row i sees position j when j <= i, or when both lie in the prefix. Slots that hold no position of the sequence are
    never mixed in, whatever is in them. Nothing waits for the device.
    """
    if q_THD.shape[0] == layout.context_lens_B.shape[0]:
        return _decode(q_THD, pool, layout)
    bounds = pairwise(layout.cu_seqlens)
    rows = zip(bounds, layout.page_table_BP, layout.context_lens, layout.prefix_lens, strict=True)
    return torch.cat(
        [
            _prefill(q_THD[start:end], _gather(pool, pages_P, context_len, layout.page_size), prefix_len)
            for (start, end), pages_P, context_len, prefix_len in rows
        ]
    )


def prefix_mask(q_len: int, context_len: int, prefix_len: int, device: torch.device) -> Tensor:
    """Return (q_len, context_len) bool: which positions the last `q_len` of `context_len` positions may see."""
    key_S = torch.arange(context_len, device=device)
    row_T1 = key_S[context_len - q_len :, None]
    return (key_S <= row_T1) | ((row_T1 < prefix_len) & (key_S < prefix_len))


def _gather(pool: Tensor, pages_P: Tensor, context_len: int, page_size: int) -> Tensor:
    used = -(-context_len // page_size)
    return pool[:, pages_P[:used].long()].flatten(1, 2)[:, :context_len]


def _prefill(q_THD: Tensor, kv_2SHD: Tensor, prefix_len: int) -> Tensor:
    q_len, context_len = q_THD.shape[0], kv_2SHD.shape[1]
    sees_all = q_len == 1 or context_len <= prefix_len
    causal = q_len == context_len and prefix_len <= 1
    mask_TS = None if sees_all or causal else prefix_mask(q_len, context_len, prefix_len, q_THD.device)
    k_1HSD, v_1HSD = kv_2SHD.transpose(1, 2)[:, None]
    o_1HTD = functional.scaled_dot_product_attention(
        q_THD.transpose(0, 1)[None], k_1HSD, v_1HSD, attn_mask=mask_TS, is_causal=causal and not sees_all
    )
    return o_1HTD[0].transpose(0, 1)


def _decode(q_BHD: Tensor, pool: Tensor, layout: PagedLayout) -> Tensor:
    contexts_B1 = layout.context_lens_B[:, None]
    padding_B1 = contexts_B1 == 0
    position_S = torch.arange(layout.page_table_BP.shape[1] * layout.page_size, device=q_BHD.device)
    seen_BS = position_S < contexts_B1
    # what lies beyond the context may be NaN, which a mask does not undo: the first position is read in its place
    read_BS = torch.where(seen_BS, position_S, 0)
    pages_BP = torch.where(padding_B1, 0, layout.page_table_BP).long()
    slots_BS = pages_BP.gather(1, read_BS // layout.page_size) * layout.page_size + read_BS % layout.page_size
    k_BHSD, v_BHSD = (
        kept.index_select(0, slots_BS.flatten()).view(*slots_BS.shape, *pool.shape[3:]).transpose(1, 2)
        for kept in _slots(pool)
    )
    o_BH1D = functional.scaled_dot_product_attention(
        q_BHD[:, :, None], k_BHSD, v_BHSD, attn_mask=(seen_BS | padding_B1)[:, None, None]
    )
    return torch.where(padding_B1[:, :, None], 0, o_BH1D[:, :, 0])


def _slots(pool: Tensor) -> tuple[Tensor, Tensor]:
    """Return a pool's keys and values by slot; a view, so that writing to it writes to the pool."""
    keys, values = pool.view(2, -1, *pool.shape[3:])
    return keys, values
