"""The tensors of a Whisper: their names in a checkpoint, their shapes, and how they are merged.

C model dim, F inner dim of the MLP, V vocabulary, M mel bands, S states of a window, P decoder positions. Linear
weights are (out, in).
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stoop_worker.models.blocks.layers import LayerNorm, Linear
from stoop_worker.models.loading.checkpoint import check_exactly
from stoop_worker.models.whisper.config import WhisperConfig

__all__ = ["CrossAttention", "DecoderBlock", "EncoderBlock", "WhisperWeights", "check_shapes", "present_name"]

_Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class EncoderBlock:
    """One layer of the encoder. `qkv` makes the heads of q, then of k, then of v; the bias of k is 0."""

    norm: LayerNorm
    qkv: Linear
    out: Linear
    mlp_norm: LayerNorm
    fc1: Linear
    fc2: Linear


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """The attention to the states: `q` from the tokens, `kv` from the states."""

    norm: LayerNorm
    q: Linear
    kv: Linear
    out: Linear


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    """One layer of the decoder: an encoder's layer, with attention to the states after its self-attention."""

    own: EncoderBlock
    cross: CrossAttention


@dataclass(frozen=True, slots=True)
class WhisperWeights:
    """`conv1` (C, M, 3) and `conv2` (C, C, 3); `tokens` (V, C) is also the head's; the tables are (S, C) and (P, C)."""

    conv1: Linear
    conv2: Linear
    states: Tensor
    encoder: tuple[EncoderBlock, ...]
    encoder_norm: LayerNorm
    tokens: Tensor
    positions: Tensor
    decoder: tuple[DecoderBlock, ...]
    norm: LayerNorm

    @classmethod
    def of(cls, tensors: MutableMapping[str, Tensor], config: WhisperConfig) -> "WhisperWeights":
        """Take the tensors, by their present names, out of the mapping, so that merging holds one layer twice."""
        take = _Taker(tensors)
        return cls(
            conv1=take.linear("encoder.conv1"),
            conv2=take.linear("encoder.conv2"),
            states=tensors.pop("encoder.embed_positions.weight"),
            encoder=tuple(take.block(f"encoder.layers.{layer}") for layer in range(config.encoder_layers)),
            encoder_norm=take.norm("encoder.layer_norm"),
            tokens=tensors.pop("decoder.embed_tokens.weight"),
            positions=tensors.pop("decoder.embed_positions.weight"),
            decoder=tuple(take.decoder_block(f"decoder.layers.{layer}") for layer in range(config.layers)),
            norm=take.norm("decoder.layer_norm"),
        )


@dataclass(frozen=True, slots=True)
class _Taker:
    tensors: MutableMapping[str, Tensor]

    def linear(self, name: str) -> Linear:
        return Linear(self.tensors.pop(f"{name}.weight"), self.tensors.pop(f"{name}.bias"))

    def norm(self, name: str) -> LayerNorm:
        return LayerNorm(self.tensors.pop(f"{name}.weight"), self.tensors.pop(f"{name}.bias"))

    def merged(self, name: str, parts: str) -> Linear:
        """Merge the projections that make these parts; the one that makes k has no bias."""
        weights = [self.tensors.pop(f"{name}.{part}_proj.weight") for part in parts]
        zeros = torch.zeros_like(weights[0][:, 0])
        biases = [self.tensors.pop(f"{name}.{part}_proj.bias", zeros) for part in parts]
        return Linear(torch.cat(weights), torch.cat(biases))

    def block(self, name: str) -> EncoderBlock:
        return EncoderBlock(
            norm=self.norm(f"{name}.self_attn_layer_norm"),
            qkv=self.merged(f"{name}.self_attn", "qkv"),
            out=self.linear(f"{name}.self_attn.out_proj"),
            mlp_norm=self.norm(f"{name}.final_layer_norm"),
            fc1=self.linear(f"{name}.fc1"),
            fc2=self.linear(f"{name}.fc2"),
        )

    def decoder_block(self, name: str) -> DecoderBlock:
        cross = CrossAttention(
            norm=self.norm(f"{name}.encoder_attn_layer_norm"),
            q=self.linear(f"{name}.encoder_attn.q_proj"),
            kv=self.merged(f"{name}.encoder_attn", "kv"),
            out=self.linear(f"{name}.encoder_attn.out_proj"),
        )
        return DecoderBlock(self.block(name), cross)


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name without the prefix of released files; None for the head, which is the table of tokens."""
    name = stored.removeprefix("model.")
    return None if name == "proj_out.weight" else (name, False)


def check_shapes(shapes: Mapping[str, tuple[int, ...]], config: WhisperConfig) -> None:
    """Raise `CheckpointError` unless these are the names and shapes of this Whisper."""
    dim = config.dim
    expected: _Shapes = {
        **_linear("encoder.conv1", dim, config.mels, 3),
        **_linear("encoder.conv2", dim, dim, 3),
        "encoder.embed_positions.weight": (config.states, dim),
        **_norm("encoder.layer_norm", dim),
        "decoder.embed_tokens.weight": (config.vocab_size, dim),
        "decoder.embed_positions.weight": (config.most_tokens, dim),
        **_norm("decoder.layer_norm", dim),
    }
    for layer in range(config.encoder_layers):
        expected |= _block(f"encoder.layers.{layer}", dim, config.encoder_ff_dim)
    for layer in range(config.layers):
        name = f"decoder.layers.{layer}"
        expected |= _block(name, dim, config.ff_dim) | _attention(f"{name}.encoder_attn", dim)
    check_exactly(shapes, expected)


def _block(name: str, dim: int, inner: int) -> _Shapes:
    return {
        **_attention(f"{name}.self_attn", dim),
        **_linear(f"{name}.fc1", inner, dim),
        **_linear(f"{name}.fc2", dim, inner),
        **_norm(f"{name}.final_layer_norm", dim),
    }


def _attention(name: str, dim: int) -> _Shapes:
    shapes = _norm(f"{name}_layer_norm", dim)
    for part in ("q", "k", "v", "out"):
        shapes |= _linear(f"{name}.{part}_proj", dim, dim)
    del shapes[f"{name}.k_proj.bias"]
    return shapes


def _linear(name: str, *shape: int) -> _Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _norm(name: str, dim: int) -> _Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}
