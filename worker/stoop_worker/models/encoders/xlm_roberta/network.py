"""XLM-RoBERTa over packed texts. T tokens, N texts, C model dim, F inner dim, H heads, D head dim."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding, normalize

from stoop_worker.engine.request import VectorKind
from stoop_worker.engine.tensors import PackedTexts, TextValues
from stoop_worker.models.blocks.layers import Rows, inner_rows, layer_norm, linear, norm_of_sum, rows_for
from stoop_worker.models.blocks.packed_attention import packed_attention
from stoop_worker.models.encoders.xlm_roberta.config import XLMRobertaConfig
from stoop_worker.models.encoders.xlm_roberta.weights import Block, ScoreHead, VectorHeads, XLMRobertaWeights

__all__ = ["VectorNetwork", "scores"]


class VectorNetwork:
    """bge-m3: the vectors of packed texts, of the kinds that each text wants.

    A text's values follow each other by kind: C for a dense vector, T for the weights, and (T - 1) * C for the vectors
    of all tokens except the first.
    """

    def __init__(self, weights: XLMRobertaWeights, heads: VectorHeads, config: XLMRobertaConfig) -> None:
        self._weights = weights
        self._heads = heads
        self._config = config

    def __call__(self, packed: PackedTexts) -> TextValues:
        """Return the vectors of each text."""
        wanted = {kind for kinds in packed.kinds for kind in kinds}
        if wanted <= {VectorKind.DENSE}:
            return TextValues.of_rows(_dense(_first_hidden(packed, self._weights, self._config)))
        hidden_TC = _hidden(packed, self._weights, self._config)
        found = {kind: self._vectors(kind, hidden_TC, packed) for kind in wanted}
        parts = [torch.cat([found[kind][number] for kind in kinds]) for number, kinds in enumerate(packed.kinds)]
        return TextValues(torch.cat(parts), tuple(map(len, parts)))

    def _vectors(self, kind: VectorKind, hidden_TC: Tensor, packed: PackedTexts) -> list[Tensor]:
        """Return one row of values for each text."""
        match kind:
            case VectorKind.DENSE:
                return list(_dense(hidden_TC[packed.firsts_N]))
            case VectorKind.SPARSE:
                assert self._heads.sparse is not None, "the model does not offer the kind without its head"
                weights_T = linear(hidden_TC, self._heads.sparse).relu().float().flatten()
                return [weights_T[start:end] for start, end in pairwise(packed.bounds)]
            case VectorKind.COLBERT:
                assert self._heads.colbert is not None, "the model does not offer the kind without its head"
                tokens_TC = _dense(linear(hidden_TC, self._heads.colbert))
                return [tokens_TC[start + 1 : end].flatten() for start, end in pairwise(packed.bounds)]


def scores(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> TextValues:
    """Return the score of each pair, a logit."""
    assert isinstance(weights.head, ScoreHead), "the config says that there is one"
    hidden_NC = linear(_first_hidden(packed, weights, config), weights.head.dense).tanh()
    return TextValues.of_rows(linear(hidden_NC, weights.head.out))


def _dense(x_NC: Tensor) -> Tensor:
    return normalize(x_NC.float(), dim=-1)


def _hidden(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> Tensor:
    """Return the last hidden state of every token, (T, C)."""
    x_TC, rows_TC = _all_but_last(packed, weights, config)
    last = weights.blocks[-1]
    return _finish(x_TC, _attend(rows_TC, last, packed, config), last)[0]


def _first_hidden(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> Tensor:
    """Return the last hidden state of each text's first token, (N, C)."""
    x_TC, rows_TC = _all_but_last(packed, weights, config)
    last = weights.blocks[-1]
    # only the keys and values of the other tokens are needed from here on
    attended_TC = _attend(rows_TC, last, packed, config)
    return _finish(x_TC[packed.firsts_N], attended_TC[packed.firsts_N], last)[0]


def _all_but_last(packed: PackedTexts, weights: XLMRobertaWeights, config: XLMRobertaConfig) -> tuple[Tensor, Rows]:
    """Run the embeddings and every block but the last; return x_TC, plain and as rows for the last."""
    positions_T = packed.positions_T + config.first_position
    x_TC = embedding(packed.ids_T, weights.words) + embedding(positions_T, weights.positions)
    x_TC = layer_norm(x_TC, weights.norm)
    rows_TC = rows_for(weights.blocks[0].qkv, x_TC)
    for block in weights.blocks[:-1]:
        packed.on_progress()
        x_TC, rows_TC = _finish(x_TC, _attend(rows_TC, block, packed, config), block)
    packed.on_progress()
    return x_TC, rows_TC


def _attend(rows_TC: Rows, block: Block, packed: PackedTexts, config: XLMRobertaConfig) -> Tensor:
    made_TN = linear(rows_TC, block.qkv)
    q_THD, k_THD, v_THD = made_TN.view(len(made_TN), 3, config.heads, -1).unbind(1)
    return packed_attention(q_THD, k_THD, v_THD, packed, scale=q_THD.shape[-1] ** -0.5).flatten(1)


def _finish(x_TC: Tensor, attended_TC: Tensor, block: Block) -> tuple[Tensor, Rows]:
    """Return the block's output, plain and as rows for the next block."""
    x_TC, rows_TC = norm_of_sum(x_TC, linear(attended_TC, block.out), block.norm, reader=block.fc1)
    return norm_of_sum(x_TC, linear(_inner(rows_TC, block), block.fc2), block.mlp_norm, reader=block.qkv)


def _inner(rows_TC: Rows, block: Block) -> Rows:
    """Return GELU of the MLP's first layer."""
    if isinstance(rows_TC, Tensor) and (not rows_TC.is_cuda or rows_TC.dtype is torch.float32):
        # in place: in a large step, taking more memory would cost more time than the function itself
        inner_TF: Tensor = torch.ops.aten.gelu_(linear(rows_TC, block.fc1))
        return inner_TF
    # in one pass with the product, or with the rounding; GELU by tanh differs from that by erf by at most 5e-4
    return inner_rows(rows_TC, block.fc1)
