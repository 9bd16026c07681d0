"""Full attention within packed texts. T tokens, N texts of L tokens, H heads, K key heads, D head dim."""

from itertools import groupby, pairwise

import torch
from torch import Tensor
from torch.nn import functional

from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.kernels.backend import runs_flash
from stoop_worker.kernels.packed_attention import Texts, takes
from stoop_worker.kernels.packed_attention import packed_attention as launch

__all__ = ["packed_attention"]


def packed_attention(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, packed: PackedTexts, *, scale: float, window: int | None = None
) -> Tensor:
    """Let every token attend to all tokens of its text, or to those at most `window` away; returns o_THD."""
    if not runs_flash(q_THD.device, q_THD.dtype) or _plain(packed, window):
        return _by_length(q_THD, k_TKD, v_TKD, packed, scale=scale, window=window)
    if takes(q_THD):
        return launch(q_THD, k_TKD, v_TKD, Texts(packed.starts_N1, packed.longest), scale=scale, window=window)
    return _flash(q_THD, k_TKD, v_TKD, packed, scale=scale, window=window)


def _plain(packed: PackedTexts, window: int | None) -> bool:
    """Return whether all texts have one length and need no mask: the usual call is the fastest for them."""
    if packed.starts is None or (window is not None and packed.longest > window + 1):
        return False
    return len({end - start for start, end in pairwise(packed.starts)}) == 1


def _flash(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, packed: PackedTexts, *, scale: float, window: int | None
) -> Tensor:
    """Run texts of all lengths in one launch, which a CUDA graph can hold."""
    reach = -1 if window is None or packed.longest <= window + 1 else window
    # the public call of torch 2.11 neither takes a window to both sides nor shares key heads
    o_THD: Tensor = torch.ops.aten._flash_attention_forward(
        q_THD,
        k_TKD,
        v_TKD,
        packed.starts_N1,
        packed.starts_N1,
        packed.longest,
        packed.longest,
        0.0,
        False,
        False,
        scale=scale,
        window_size_left=reach,
        window_size_right=reach,
    )[0]
    return o_THD


def _by_length(
    q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, packed: PackedTexts, *, scale: float, window: int | None
) -> Tensor:
    """Run neighbours of one length together."""
    out_THD = torch.empty_like(q_THD)
    lengths = [end - start for start, end in pairwise(packed.bounds)]
    start = 0
    for length, texts in groupby(lengths):
        end = start + length * len(list(texts))
        if length == 0:
            continue
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
