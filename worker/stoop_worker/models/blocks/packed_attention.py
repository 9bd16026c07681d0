"""Full attention within texts, from torch's own. T tokens, N texts of L tokens, H heads, K key heads, D head dim."""

from collections.abc import Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["packed_attention"]


def packed_attention(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, starts: Sequence[int], *, scale: float, window: int | None = None
) -> Tensor:
    """Let every token attend to all tokens of its text, or to those at most `window` away; returns o_THD.

    Text n has the rows from `starts[n]` to `starts[n + 1]`. Neighbours of one length run together.
    """
    out_THD = torch.empty_like(q_THD)
    lengths = [end - start for start, end in pairwise(starts)]
    start = 0
    for length, texts in groupby(lengths):
        end = start + length * len(list(texts))
        rows = (x_TXD[start:end].view(-1, length, *x_TXD.shape[1:]) for x_TXD in (q_THD, k_TKD, v_TKD))
        q_NHLD, k_NKLD, v_NKLD = (x_NLXD.transpose(1, 2) for x_NLXD in rows)
        o_NHLD = functional.scaled_dot_product_attention(
            q_NHLD,
            k_NKLD,
            v_NKLD,
            attn_mask=_near(length, window, q_THD.device),
            scale=scale,
            enable_gqa=q_THD.shape[1] != k_TKD.shape[1],
        )
        out_THD[start:end] = o_NHLD.transpose(1, 2).flatten(0, 1)
        start = end
    return out_THD


def _near(length: int, window: int | None, device: torch.device) -> Tensor | None:
    """Return a mask of the pairs at most `window` apart, (L, L); None if that is all pairs."""
    if window is None or length <= window + 1:
        return None
    places = torch.arange(length, device=device)
    return (places[:, None] - places).abs() <= window
