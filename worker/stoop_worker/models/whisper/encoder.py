"""Whisper's encoder: log-mel frames to the states of a window.

N windows, M mel bands, L frames, S states, C model dim, H heads, D head dim.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv1d, gelu, scaled_dot_product_attention

from stoop_worker.kernels.layer_norm import add_layer_norm
from stoop_worker.models.blocks.layers import layer_norm, linear
from stoop_worker.models.whisper.weights import EncoderBlock, WhisperWeights

__all__ = ["encode", "padded"]


def encode(frames_NML: Tensor, weights: WhisperWeights, heads: int, on_progress: Callable[[], None]) -> Tensor:
    """Return the states of each window, states_NSC; calls `on_progress` before each layer."""
    on_progress()
    x_NCL = gelu(conv1d(frames_NML, weights.conv1.weight, weights.conv1.bias, padding=1))
    x_NCS = gelu(conv1d(x_NCL, weights.conv2.weight, weights.conv2.bias, stride=2, padding=1))
    x_NSC = x_NCS.transpose(1, 2) + weights.states
    for block in weights.encoder:
        on_progress()
        x_NSC = _run(x_NSC, block, heads)
    return layer_norm(x_NSC, weights.encoder_norm)


def _run(x_NSC: Tensor, block: EncoderBlock, heads: int) -> Tensor:
    attended_NSC = _attend(linear(layer_norm(x_NSC, block.norm), block.qkv), heads)
    x_NSC, normed_NSC = add_layer_norm(
        x_NSC, (linear(attended_NSC, block.out),), block.mlp_norm.weight, block.mlp_norm.bias
    )
    return x_NSC + linear(gelu(linear(normed_NSC, block.fc1)), block.fc2)


def _attend(qkv_NSC: Tensor, heads: int) -> Tensor:
    q_NHSD, k_NHSD, v_NHSD = qkv_NSC.view(*qkv_NSC.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
    o_NHSD: Tensor = scaled_dot_product_attention(q_NHSD, k_NHSD, v_NHSD)
    return o_NHSD.transpose(1, 2).flatten(2)


def padded(states_NSC: Tensor, rows: int) -> Tensor:
    """Return the states with rows of zeros after each window's, (N `rows`, C)."""
    padding = states_NSC.new_zeros(len(states_NSC), rows - states_NSC.shape[1], states_NSC.shape[2])
    return torch.cat((states_NSC, padding), dim=1).flatten(0, 1)
