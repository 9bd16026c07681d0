"""XLM-RoBERTa over packed texts. T tokens, N texts, C model dim, H heads, D head dim."""

from torch import Tensor
from torch.nn.functional import embedding, gelu, normalize

from stoop_worker.engine.tensors import PackedTexts
from stoop_worker.kernels.layer_norm import add_layer_norm
from stoop_worker.models.blocks.layers import layer_norm, linear
from stoop_worker.models.blocks.packed_attention import packed_attention
from stoop_worker.models.encoders.xlm_roberta.config import XLMRobertaConfig
from stoop_worker.models.encoders.xlm_roberta.weights import Block, ScoreHead, XLMRobertaWeights

__all__ = ["first_hidden", "scores", "vectors"]


def vectors(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> Tensor:
    """Return the hidden state of each text's first token at length 1, (N, C) float32: bge-m3's dense vector."""
    return normalize(first_hidden(packed, weights, config).float(), dim=-1)


def scores(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> Tensor:
    """Return the score of each pair, a logit, (N, 1) float32."""
    assert isinstance(weights.head, ScoreHead), "the config says that there is one"
    hidden_NC = linear(first_hidden(packed, weights, config), weights.head.dense).tanh()
    return linear(hidden_NC, weights.head.out).float()


def first_hidden(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> Tensor:
    """Return the last hidden state of each text's first token, (N, C)."""
    positions_T = packed.positions_T + config.first_position
    x_TC = embedding(packed.ids_T, weights.words) + embedding(positions_T, weights.positions)
    x_TC = layer_norm(x_TC, weights.norm)
    for block in weights.blocks[:-1]:
        packed.on_progress()
        x_TC = _finish(x_TC, _attend(x_TC, block, packed, config), block)
    packed.on_progress()
    last = weights.blocks[-1]
    # only the keys and values of the other tokens are needed from here on
    attended_TC = _attend(x_TC, last, packed, config)
    return _finish(x_TC[packed.firsts_N], attended_TC[packed.firsts_N], last)


def _attend(x_TC: Tensor, block: Block, packed: PackedTexts, config: XLMRobertaConfig) -> Tensor:
    q_THD, k_THD, v_THD = linear(x_TC, block.qkv).view(len(x_TC), 3, config.heads, -1).unbind(1)
    return packed_attention(q_THD, k_THD, v_THD, packed.starts, scale=q_THD.shape[-1] ** -0.5).flatten(1)


def _finish(x_TC: Tensor, attended_TC: Tensor, block: Block) -> Tensor:
    _, x_TC = add_layer_norm(x_TC, (linear(attended_TC, block.out),), block.norm.weight, block.norm.bias)
    added_TC = linear(gelu(linear(x_TC, block.fc1)), block.fc2)
    return add_layer_norm(x_TC, (added_TC,), block.mlp_norm.weight, block.mlp_norm.bias)[1]
