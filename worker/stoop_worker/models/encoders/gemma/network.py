"""embeddinggemma over packed texts. T tokens, N texts, C model dim, H heads, K key heads, D head dim, F frequencies."""

import torch
from torch import Tensor
from torch.nn.functional import embedding, normalize

from stoop_worker.engine.tensors import PackedTexts, TextValues
from stoop_worker.kernels.linear import linear
from stoop_worker.kernels.rms_norm import rms_norm, rms_norm_add_rms_norm
from stoop_worker.kernels.rotate_write import HeadNorms, Places, rotate_write
from stoop_worker.kernels.swiglu import geglu
from stoop_worker.models.blocks.packed_attention import packed_attention
from stoop_worker.models.blocks.rope import frequencies, rotations
from stoop_worker.models.encoders.gemma.config import GemmaConfig
from stoop_worker.models.encoders.gemma.weights import Block, GemmaWeights

__all__ = ["GemmaNetwork"]


class GemmaNetwork:
    """Takes packed texts; returns their vectors of C values, at length 1."""

    def __init__(self, weights: GemmaWeights, config: GemmaConfig, most: int) -> None:
        self._weights = weights
        self._config = config
        words = weights.words
        self._rotations = {
            theta: rotations(frequencies(config.head_dim, theta), most, words.device, dtype=words.dtype)
            for theta in set(config.thetas)
        }

    def __call__(self, packed: PackedTexts) -> TextValues:
        """Run the layers, average each text's hidden states, and run the layers over the mean."""
        hidden_TC = self._hidden(packed).float()
        # the starts are trusted, because checking them would wait for the device
        mean_NC = torch.segment_reduce(hidden_TC, "mean", offsets=packed.starts_N1.long(), axis=0, unsafe=True)
        for dense in self._weights.denses:
            mean_NC = linear(mean_NC, dense)
        return TextValues.of_rows(normalize(mean_NC, dim=-1))

    def _hidden(self, packed: PackedTexts) -> Tensor:
        """Return the normalised last hidden states, (T, C)."""
        weights, config = self._weights, self._config
        x_TC = embedding(packed.ids_T, weights.words)
        # the factor itself is rounded to the dtype, as in the model's training
        x_TC = x_TC * torch.tensor(config.dim**0.5, dtype=x_TC.dtype)
        rows_TC = self._norm(x_TC, weights.blocks[0].norms[0])
        for layer, block in enumerate(weights.blocks):
            packed.on_progress()
            _, after, before_mlp, after_mlp = block.norms
            following = weights.norm if layer + 1 == config.layers else weights.blocks[layer + 1].norms[0]
            attended_TC = self._attend(rows_TC, layer, packed)
            x_TC, rows_TC = self._add(x_TC, linear(attended_TC, block.out), (after, before_mlp))
            x_TC, rows_TC = self._add(x_TC, _mlp(rows_TC, block), (after_mlp, following))
        return rows_TC

    def _attend(self, rows_TC: Tensor, layer: int, packed: PackedTexts) -> Tensor:
        """Return the heads' outputs side by side. Rotated channels are in another order, the same for q and k."""
        config, block = self._config, self._weights.blocks[layer]
        made_TN = linear(rows_TC, block.qkv)
        # one page with room for all tokens
        kv_2TKD = made_TN.new_empty(2, 1, len(made_TN), config.key_heads, config.head_dim)
        rows_T = torch.arange(len(made_TN), device=made_TN.device)
        places = Places(packed.positions_T, self._rotations[config.thetas[layer]], rows_T)
        norms = HeadNorms(block.q_norm, block.k_norm, config.epsilon)
        q_THD = rotate_write(made_TN, places, kv_2TKD, norms=norms)
        k_TKD, v_TKD = kv_2TKD[:, 0]
        window = config.windows[layer]
        return packed_attention(q_THD, k_TKD, v_TKD, packed, scale=config.scale, window=window).flatten(1)

    def _norm(self, x_TC: Tensor, weight_C: Tensor) -> Tensor:
        return rms_norm(x_TC, weight_C, epsilon=self._config.epsilon)

    def _add(self, x_TC: Tensor, added_TC: Tensor, weights: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the sum with a block's normalised output, and the norm of the sum."""
        return rms_norm_add_rms_norm(x_TC, added_TC, weights, epsilon=self._config.epsilon)


def _mlp(x_TC: Tensor, block: Block) -> Tensor:
    return linear(geglu(linear(x_TC, block.gate_up)), block.down)
