"""Attention over a paged KV pool.

B sequences, T query rows packed over sequences, S key positions, H heads, D head dim, P pages of the longest sequence.
One layer's pool is (2, pages, page size, H, D): keys, then values. A slot is page * page size + offset.
"""

import torch
from torch import Tensor
from torch.nn import functional

from worker.kernels.paged_attention.layout import PagedLayout

__all__ = ["paged_attention", "prefix_mask", "write_kv"]


def write_kv(k_THD: Tensor, v_THD: Tensor, pool: Tensor, slots_T: Tensor) -> None:
    """Store the keys and values of T tokens in their slots (int64) of one layer's pool."""
    keys, values = pool.flatten(1, 2).unbind(0)
    keys.index_copy_(0, slots_T, k_THD)
    values.index_copy_(0, slots_T, v_THD)


def paged_attention(q_THD: Tensor, pool: Tensor, layout: PagedLayout) -> Tensor:
    """Let every query row attend to its sequence's positions in the pool; returns o_THD.

    Row i sees position j when j <= i, or when both lie in the prefix. Slots that hold no position of the sequence are
    never mixed in, whatever is in them. When every sequence has one row, nothing waits for the device.
    """
    if q_THD.shape[0] == layout.context_lens_B.shape[0]:
        return _decode(q_THD, pool, layout)
    bounds = layout.cu_seqlens_B1.tolist()
    contexts, prefixes = layout.context_lens_B.tolist(), layout.prefix_lens_B.tolist()
    return torch.cat(
        [
            _prefill(q_THD[start:end], _gather(pool, pages_P, contexts[b], layout.page_size), prefixes[b])
            for b, (start, end, pages_P) in enumerate(zip(bounds, bounds[1:], layout.page_table_BP, strict=False))
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
    capacity = layout.page_table_BP.shape[1] * layout.page_size
    used_BS = torch.arange(capacity, device=q_BHD.device) < layout.context_lens_B[:, None]
    # entries past the context may name no page at all
    pages_BP = torch.where(used_BS[:, :: layout.page_size], layout.page_table_BP, 0).long()
    kv_2BSHD = pool[:, pages_BP].flatten(2, 3)
    # a masked NaN is still a NaN: what was never written must be wiped, not only masked
    kv_2BSHD.masked_fill_(~used_BS[:, :, None, None], 0)
    k_BHSD, v_BHSD = kv_2BSHD.transpose(2, 3)
    padding_B1 = layout.context_lens_B[:, None] == 0
    o_BH1D = functional.scaled_dot_product_attention(
        q_BHD[:, :, None], k_BHSD, v_BHSD, attn_mask=(used_BS | padding_B1)[:, None, None]
    )
    return o_BH1D[:, :, 0]
