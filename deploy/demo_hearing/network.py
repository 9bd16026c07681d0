"""The network of a Whisper for training, over its tensors by their names in a checkpoint.

B windows, T ids, S states, C model dim, H heads, D head dim, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d, gelu, layer_norm, linear, scaled_dot_product_attention

__all__ = ["Sizes", "decode", "encode", "first_tensors", "guide", "logits"]

POSITIONS = 448
STATES = 1500
_Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model; heads have 64 channels."""

    dim: int = 192
    encoder_layers: int = 3
    layers: int = 2
    mels: int = 80

    @property
    def heads(self) -> int:
        """Heads of encoder and decoder."""
        return self.dim // 64

    def document(self) -> dict[str, Any]:
        """Return the sizes as JSON has them."""
        return asdict(self)


def sinusoids(dim: int) -> Tensor:
    """Return the positions of the states, (S, C): sines, then cosines."""
    rates = torch.exp(-log(10_000) / (dim // 2 - 1) * torch.arange(dim // 2))
    angles = torch.arange(STATES + 1)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def first_tensors(sizes: Sizes, vocabulary: int, first_stamp: int, seed: int = 0) -> dict[str, Tensor]:
    """Return float32 weights to start training from."""
    source = torch.Generator().manual_seed(seed)
    dim, tensors = sizes.dim, dict[str, Tensor]()

    def matrix(name: str, *shape: int, quiet: float = 1.0, bias: bool = True) -> None:
        fan_in = shape[1] * (shape[2] if len(shape) == 3 else 1)
        tensors[f"{name}.weight"] = torch.randn(shape, generator=source) * quiet / sqrt(fan_in)
        if bias:
            tensors[f"{name}.bias"] = torch.zeros(shape[0])

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = torch.ones(dim), torch.zeros(dim)

    def layer(name: str, depth: int, *kinds: str) -> None:
        quiet = 1 / sqrt(2 * depth)
        for kind in kinds:
            for part in "qkv":
                matrix(f"{name}.{kind}.{part}_proj", dim, dim, bias=part != "k")
            matrix(f"{name}.{kind}.out_proj", dim, dim, quiet=quiet)
            norm(f"{name}.{kind}_layer_norm")
        matrix(f"{name}.fc1", 4 * dim, dim)
        matrix(f"{name}.fc2", dim, 4 * dim, quiet=quiet)
        norm(f"{name}.final_layer_norm")

    matrix("model.encoder.conv1", dim, sizes.mels, 3)
    matrix("model.encoder.conv2", dim, dim, 3)
    waves = sinusoids(dim)
    tensors["model.encoder.embed_positions.weight"] = waves[:STATES].clone()
    for number in range(sizes.encoder_layers):
        layer(f"model.encoder.layers.{number}", sizes.encoder_layers, "self_attn")
    norm("model.encoder.layer_norm")
    table = torch.randn(vocabulary, dim, generator=source) * 0.05
    # a time looks like the state that it belongs to, so the decoder finds one by the other from the start
    table[first_stamp:] = 0.05 * sqrt(2) * waves
    tensors["model.decoder.embed_tokens.weight"] = table
    tensors["model.decoder.embed_positions.weight"] = 0.02 * torch.randn(POSITIONS, dim, generator=source)
    for number in range(sizes.layers):
        layer(f"model.decoder.layers.{number}", sizes.layers, "self_attn", "encoder_attn")
    norm("model.decoder.layer_norm")
    return tensors


def encode(frames_BML: Tensor, tensors: _Tensors, sizes: Sizes) -> Tensor:
    """Return the states (B, S, C) of frames."""
    name = "model.encoder"
    x = gelu(conv1d(frames_BML, tensors[f"{name}.conv1.weight"], tensors[f"{name}.conv1.bias"], padding=1))
    x = gelu(conv1d(x, tensors[f"{name}.conv2.weight"], tensors[f"{name}.conv2.bias"], stride=2, padding=1))
    x = x.transpose(1, 2)
    x = x + tensors[f"{name}.embed_positions.weight"][: x.shape[1]]
    for number in range(sizes.encoder_layers):
        prefix = f"{name}.layers.{number}"
        normed = _norm(x, tensors, f"{prefix}.self_attn_layer_norm")
        x = x + _attention(normed, normed, tensors, f"{prefix}.self_attn", sizes, causal=False)
        x = x + _mlp(x, tensors, prefix)
    return _norm(x, tensors, f"{name}.layer_norm")


def decode(ids_BT: Tensor, states_BSC: Tensor, tensors: _Tensors, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return the hidden states (B, T, C), and the input of the last layer's attention to the sound."""
    name = "model.decoder"
    x = tensors[f"{name}.embed_tokens.weight"][ids_BT]
    x = x + tensors[f"{name}.embed_positions.weight"][: ids_BT.shape[1]]
    asked = x
    for number in range(sizes.layers):
        prefix = f"{name}.layers.{number}"
        normed = _norm(x, tensors, f"{prefix}.self_attn_layer_norm")
        x = x + _attention(normed, normed, tensors, f"{prefix}.self_attn", sizes, causal=True)
        asked = _norm(x, tensors, f"{prefix}.encoder_attn_layer_norm")
        x = x + _attention(asked, states_BSC, tensors, f"{prefix}.encoder_attn", sizes, causal=False)
        x = x + _mlp(x, tensors, prefix)
    return _norm(x, tensors, f"{name}.layer_norm"), asked


def logits(hidden: Tensor, tensors: _Tensors) -> Tensor:
    """Return logits in float32."""
    return linear(hidden, tensors["model.decoder.embed_tokens.weight"]).float()


def guide(asked_BTC: Tensor, states_BSC: Tensor, spans_BT2: Tensor, tensors: _Tensors, sizes: Sizes) -> Tensor:
    """Return the loss that makes the first head of the last layer look at the word that is written next.

    It is minus the logarithm of the attention within the word, the mean over ids with a span.
    """
    prefix = f"model.decoder.layers.{sizes.layers - 1}.encoder_attn"
    dim = 64
    q = linear(asked_BTC, tensors[f"{prefix}.q_proj.weight"][:dim], tensors[f"{prefix}.q_proj.bias"][:dim])
    k = linear(states_BSC, tensors[f"{prefix}.k_proj.weight"][:dim])
    weights_BTS = (q @ k.transpose(1, 2) / sqrt(dim)).float()
    state = torch.arange(states_BSC.shape[1], device=q.device)
    inside_BTS = (state >= spans_BT2[..., :1]) & (state < spans_BT2[..., 1:])
    known_BT = inside_BTS.any(-1)
    inside = weights_BTS.masked_fill(~inside_BTS, -1e4).logsumexp(-1)
    loss_BT = (weights_BTS.logsumexp(-1) - inside) * known_BT
    return loss_BT.sum() / known_BT.sum().clamp_min(1)


def _norm(x: Tensor, tensors: _Tensors, name: str) -> Tensor:
    return layer_norm(x, x.shape[-1:], tensors[f"{name}.weight"], tensors[f"{name}.bias"])


def _mlp(x: Tensor, tensors: _Tensors, prefix: str) -> Tensor:
    normed = _norm(x, tensors, f"{prefix}.final_layer_norm")
    inner = gelu(linear(normed, tensors[f"{prefix}.fc1.weight"], tensors[f"{prefix}.fc1.bias"]))
    return linear(inner, tensors[f"{prefix}.fc2.weight"], tensors[f"{prefix}.fc2.bias"])


def _attention(x: Tensor, memory: Tensor, tensors: _Tensors, name: str, sizes: Sizes, *, causal: bool) -> Tensor:
    def heads(source: Tensor, part: str) -> Tensor:
        found = linear(source, tensors[f"{name}.{part}_proj.weight"], tensors.get(f"{name}.{part}_proj.bias"))
        return found.view(*source.shape[:2], sizes.heads, 64).transpose(1, 2)

    attended = scaled_dot_product_attention(heads(x, "q"), heads(memory, "k"), heads(memory, "v"), is_causal=causal)
    return linear(
        attended.transpose(1, 2).flatten(2), tensors[f"{name}.out_proj.weight"], tensors[f"{name}.out_proj.bias"]
    )
