"""embeddinggemma over packed texts. T tokens, N texts, C model dim, H heads, K key heads, D head dim, F frequencies."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear, normalize

from stoop_worker.engine.tensors import PackedTexts, TextValues
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
        mean_NC = torch.stack([hidden_TC[start:end].mean(0) for start, end in pairwise(packed.starts)])
        for dense in self._weights.denses:
            mean_NC = linear(mean_NC, dense)
        return TextValues.of_rows(normalize(mean_NC, dim=-1))

    def _hidden(self, packed: PackedTexts) -> Tensor:
        """Return the normalised last hidden states, (T, C)."""
        weights, config = self._weights, self._config
        x_TC = embedding(packed.ids_T, weights.words)
        # the factor itself is rounded to the dtype, as in the model's training
        x_TC = x_TC * torch.tensor(config.dim**0.5, dtype=x_TC.dtype, device=x_TC.device)
        places = {theta: table_SF2[packed.positions_T] for theta, table_SF2 in self._rotations.items()}
        for layer, block in enumerate(weights.blocks):
            packed.on_progress()
            before, after, before_mlp, after_mlp = block.norms
            attended_TC = self._attend(self._norm(x_TC, before), layer, packed, places[config.thetas[layer]])
            x_TC = x_TC + self._norm(linear(attended_TC, block.out), after)
            x_TC = x_TC + self._norm(_mlp(self._norm(x_TC, before_mlp), block), after_mlp)
        return self._norm(x_TC, weights.norm)

    def _attend(self, x_TC: Tensor, layer: int, packed: PackedTexts, places_TF2: Tensor) -> Tensor:
        config, block = self._config, self._weights.blocks[layer]
        made_TXD = linear(x_TC, block.qkv).view(len(x_TC), -1, config.head_dim)
        keys = config.heads + config.key_heads
        q_THD = _rotate(self._norm(made_TXD[:, : config.heads], block.q_norm), places_TF2)
        k_TKD = _rotate(self._norm(made_TXD[:, config.heads : keys], block.k_norm), places_TF2)
        v_TKD = made_TXD[:, keys:]
        window = config.windows[layer]
        return packed_attention(q_THD, k_TKD, v_TKD, packed.starts, scale=config.scale, window=window).flatten(1)

    def _norm(self, x_TC: Tensor, weight_C: Tensor) -> Tensor:
        """Divide each row by its root mean square and multiply it by 1 + weight, in float32 until the end."""
        x = x_TC.float()
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._config.epsilon)
        return (normed * (1 + weight_C.float())).to(x_TC.dtype)


def _rotate(x_THD: Tensor, places_TF2: Tensor) -> Tensor:
    """Rotate channel i together with channel i + D / 2."""
    cos_TXF, sin_TXF = places_TF2[:, None, :, 0], places_TF2[:, None, :, 1]
    low_THF, high_THF = x_THD.float().chunk(2, dim=-1)
    rotated = (low_THF * cos_TXF - high_THF * sin_TXF, high_THF * cos_TXF + low_THF * sin_TXF)
    return torch.cat(rotated, dim=-1).to(x_THD.dtype)


def _mlp(x_TC: Tensor, block: Block) -> Tensor:
    gate_TF, up_TF = linear(x_TC, block.gate_up).chunk(2, dim=-1)
    return linear(gelu(gate_TF, approximate="tanh") * up_TF, block.down)
