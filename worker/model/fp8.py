"""A model's weights with the large products in fp8: for the passes that compute much, not for those that read much."""

from dataclasses import replace

from worker.kernels.fp8 import Fp8Linear
from worker.model.weights import MLP, AnyLinear, Attention, Linear, Weights

__all__ = ["in_fp8"]


def in_fp8(weights: Weights) -> Weights:
    """Return weights whose vision and text blocks have fp8 linears; all else is shared with `weights`.

    Each output channel has a scale of its own, and the rows that come in are quantised as they come.
    """
    vision, text = weights.vision, weights.text
    return replace(
        weights,
        vision=replace(
            vision,
            blocks=tuple(replace(block, attn=_attention(block.attn), mlp=_mlp(block.mlp)) for block in vision.blocks),
            proj_mlp=_mlp(vision.proj_mlp),
        ),
        text=replace(
            text,
            blocks=tuple(replace(block, attn=_attention(block.attn), mlp=_mlp(block.mlp)) for block in text.blocks),
        ),
    )


def _attention(attention: Attention) -> Attention:
    return Attention(_linear(attention.qkv), _linear(attention.proj))


def _mlp(mlp: MLP) -> MLP:
    return MLP(_linear(mlp.fc1), _linear(mlp.fc2))


def _linear(linear: AnyLinear) -> Fp8Linear:
    assert isinstance(linear, Linear)
    return Fp8Linear.of(linear.weight, linear.bias)
