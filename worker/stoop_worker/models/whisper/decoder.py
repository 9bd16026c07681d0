"""Whisper's decoder over the KV cache. T rows of tokens, N rows of windows, C model dim, H heads, D head dim."""

from torch import Tensor
from torch.nn.functional import gelu

from stoop_worker.engine.tensors import KVView
from stoop_worker.kernels.layer_norm import add_layer_norm
from stoop_worker.kernels.linear import linear as product
from stoop_worker.kernels.paged_attention import paged_attention, write_all_kv
from stoop_worker.kernels.rotate_write import Places, rotate_write
from stoop_worker.models.blocks.layers import layer_norm, linear
from stoop_worker.models.whisper.memory import Reach
from stoop_worker.models.whisper.weights import CrossAttention, DecoderBlock, WhisperWeights

__all__ = ["forward", "logits", "remember"]


def remember(states_NC: Tensor, kv: KVView, weights: WhisperWeights) -> None:
    """Store the keys and values that each layer's cross-attention makes of windows, in the rows of `kv`."""
    for layer, block in enumerate(weights.decoder):
        kv.on_progress()
        _, _, _, _, heads, head_dim = kv.pool.shape
        kv_N2HD = linear(states_NC, block.cross.kv).view(-1, 2, heads, head_dim)
        write_all_kv(kv_N2HD[:, 0], kv_N2HD[:, 1], kv.pool[layer], kv.slots_T)


def forward(x_TC: Tensor, kv: KVView, places: Places, reach: Reach, weights: WhisperWeights) -> Tensor:
    """Run rows of tokens, whose windows are in the cache; return the residual stream after the last block (no norm)."""
    for layer, block in enumerate(weights.decoder):
        kv.on_progress()
        x_TC = _run(x_TC, block, kv.pool[layer], places, reach)
    return x_TC


def logits(hidden_RC: Tensor, weights: WhisperWeights) -> Tensor:
    """Return logits_RV, float32 or wider."""
    found_RV = product(layer_norm(hidden_RC, weights.norm), weights.tokens)
    return found_RV if found_RV.itemsize >= 4 else found_RV.float()


def _run(x_TC: Tensor, block: DecoderBlock, pool: Tensor, places: Places, reach: Reach) -> Tensor:
    own, cross = block.own, block.cross
    # rotated by an angle of 0: the queries and keys only have to be laid out alike
    q_THD = rotate_write(linear(layer_norm(x_TC, own.norm), own.qkv), places, pool)
    attended_TC = paged_attention(q_THD, pool, reach.own).flatten(1)
    x_TC, normed_TC = add_layer_norm(x_TC, (linear(attended_TC, own.out),), cross.norm.weight, cross.norm.bias)
    heard_TC = _listen(normed_TC, cross, pool, reach)
    x_TC, normed_TC = add_layer_norm(x_TC, (heard_TC,), own.mlp_norm.weight, own.mlp_norm.bias)
    return x_TC + linear(gelu(linear(normed_TC, own.fc1)), own.fc2)


def _listen(normed_TC: Tensor, cross: CrossAttention, pool: Tensor, reach: Reach) -> Tensor:
    q_THD = linear(normed_TC, cross.q).view(len(normed_TC), *pool.shape[3:])
    return linear(paged_attention(q_THD, pool, reach.states).flatten(1), cross.out)
