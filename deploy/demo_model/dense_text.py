"""The text model for training: a decoder without a cache, whose attention is the caller's.

B rows, T tokens packed over rows, C model dim, H heads, D head dim, V vocabulary, N columns of q, k
and v. T may stand for several leading dims.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from stoop_worker.kernels.paged_attention import prefix_mask
from stoop_worker.kernels.rope import Rotation, rope, rotation
from stoop_worker.models.blocks.layers import layer_norm, linear
from stoop_worker.models.moondream.config_parts import TextConfig
from stoop_worker.models.moondream.moe import feed_forward
from stoop_worker.models.moondream.tau import tempered
from stoop_worker.models.moondream.text import embed, logits
from stoop_worker.models.moondream.weights import TextWeights

__all__ = ["Attend", "dense_attend", "embed", "forward", "logits"]


class Attend(Protocol):
    """Attention of one layer; the caller owns the KV cache and the mask."""

    def __call__(self, layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
        """Return o_THD for queries and keys that are already rotated; the scale is 1 / sqrt(D)."""


_LayerAttend = Callable[[Tensor, Tensor, Tensor], Tensor]


def forward(x_TC: Tensor, positions_T: Tensor, weights: TextWeights, config: TextConfig, attend: Attend) -> Tensor:
    """Run the decoder; returns hidden_TC, the residual stream as it is after the last block (no norm).

    `positions_T` are absolute, from 0, image and first token included; in a batch they may be one row for all.
    """
    rotation_TF = rotation(positions_T, config.rotary_dim, config.rope_theta, dtype=x_TC.dtype)
    for layer, block in enumerate(weights.blocks):
        # attention and MLP read the same norm; the order of the two sums matters, because bfloat16 rounds each
        normed_TC = layer_norm(x_TC, block.ln)
        qkv_TN = tempered(linear(normed_TC, block.attn.qkv), positions_T, block.attn)
        attended_TC = _attend(qkv_TN, rotation_TF, config.n_heads, partial(attend, layer))
        x_TC = x_TC + linear(attended_TC, block.attn.proj) + feed_forward(normed_TC, block.mlp)
    return x_TC


def _attend(qkv_TN: Tensor, rotation_TF: Rotation, heads: int, attend: _LayerAttend) -> Tensor:
    # queries and keys lie side by side as heads, so they are rotated as one
    qkv_THD = qkv_TN.view(*qkv_TN.shape[:-1], 3 * heads, -1)
    qk_THD, v_THD = qkv_THD[..., : 2 * heads, :], qkv_THD[..., 2 * heads :, :]
    q_THD, k_THD = rope(qk_THD, rotation_TF).chunk(2, dim=-2)
    return attend(q_THD, k_THD, v_THD).flatten(-2)


def dense_attend(prefix_len: int) -> Attend:
    """Return plain attention within x: (…, T, H, D), all positions from 0, no cache.

    Row i sees j when j <= i, or when both are below `prefix_len`; 0 is plain causal.
    """

    def attend(layer: int, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor) -> Tensor:
        count = q_THD.shape[-3]
        mask_TT = prefix_mask(count, count, prefix_len, q_THD.device) if prefix_len > 1 else None
        q_HTD, k_HTD, v_HTD = (x.transpose(-3, -2) for x in (q_THD, k_THD, v_THD))
        o_HTD = functional.scaled_dot_product_attention(
            q_HTD, k_HTD, v_HTD, attn_mask=mask_TT, is_causal=mask_TT is None
        )
        return o_HTD.transpose(-3, -2)

    return attend
