"""Full attention within packed texts. T tokens, N texts, H heads, K key heads, D head dim; L tokens of one text."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Texts", "packed_attention"]


class Texts(NamedTuple):
    """Text n has the rows from `starts_N1[n]` (int32) to `starts_N1[n + 1]`; none is longer than `longest`."""

    starts_N1: Tensor
    longest: int


def packed_attention(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, texts: Texts, *, scale: float, window: int | None = None
) -> Tensor:
    """Let every token attend to all tokens of its text, or to those at most `window` away; returns o_THD.

    Heads share key heads in order. It is computed in at least float32, and rounded once. Rows of no text are 0.
    """
    precise = torch.promote_types(q_THD.dtype, torch.float32)
    group = q_THD.shape[1] // k_TKD.shape[1]
    out_THD = torch.zeros_like(q_THD, memory_format=torch.contiguous_format)
    for start, end in pairwise(texts.starts_N1.tolist()):
        q_LHD = q_THD[start:end].to(precise)
        k_LHD, v_LHD = (x_TKD[start:end].to(precise).repeat_interleave(group, dim=1) for x_TKD in (k_TKD, v_TKD))
        scores_HLL = torch.einsum("ihd,jhd->hij", q_LHD, k_LHD) * scale
        if window is not None:
            places_L = torch.arange(end - start, device=q_THD.device)
            scores_HLL = scores_HLL.masked_fill((places_L[:, None] - places_L).abs() > window, -torch.inf)
        out_THD[start:end] = torch.einsum("hij,jhd->ihd", scores_HLL.softmax(-1), v_LHD).to(q_THD.dtype)
    return out_THD
