"""A model's weights with the large products in fp8: for passes bound by compute, not for those bound by reading
weights.
"""

from dataclasses import replace

import torch

from stoop_worker.engine.config import check_float8
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.fp8 import Fp8Linear
from stoop_worker.models.blocks.layers import MLP, AnyLinear, Linear
from stoop_worker.models.moondream.weights import Attention, MoE, TextBlock, Weights

__all__ = ["in_fp8"]

_MULTIPLE = 16  # cuBLAS requires it of both sizes of a matrix


def in_fp8(weights: Weights) -> Weights:
    """Return weights whose vision and text blocks have fp8 linears, except blocks with experts.

    All else is shared with `weights`. Each output channel has its own scale, and input rows are quantised on the fly.
    Raises `ConfigError` where the device or the model's sizes do not allow it.
    """
    _check(weights)
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
            blocks=tuple(_text_block(block) for block in text.blocks),
        ),
    )


def _text_block(block: TextBlock) -> TextBlock:
    if isinstance(block.mlp, MoE):
        return block  # its router decides by small differences, and reads the same rows as its attention
    return replace(block, attn=_attention(block.attn), mlp=_mlp(block.mlp))


def _check(weights: Weights) -> None:
    wte = weights.text.wte
    check_float8(wte.device, "fp8_linears")
    if wte.is_cuda and wte.dtype is not torch.bfloat16:
        raise ConfigError("fp8_linears goes with bfloat16 on a GPU: use dtype bfloat16, or leave it off")
    first = weights.text.blocks[0].mlp
    mlps = (weights.vision.blocks[0].mlp, weights.vision.proj_mlp, *((first,) if isinstance(first, MLP) else ()))
    for linear in (weights.text.blocks[0].attn.qkv, *(mlp.fc1 for mlp in mlps)):
        assert isinstance(linear, Linear)
        if any(size % _MULTIPLE for size in linear.weight.shape):
            raise ConfigError(
                f"fp8_linears needs layers whose sizes are multiples of {_MULTIPLE}, and this model has one of "
                f"{tuple(linear.weight.shape)}: leave it off"
            )


def _attention(attention: Attention) -> Attention:
    return replace(attention, qkv=_linear(attention.qkv), proj=_linear(attention.proj))


def _mlp(mlp: MLP) -> MLP:
    return MLP(_linear(mlp.fc1), _linear(mlp.fc2))


def _linear(linear: AnyLinear) -> Fp8Linear:
    assert isinstance(linear, Linear)
    return Fp8Linear.of(linear.weight, linear.bias)
