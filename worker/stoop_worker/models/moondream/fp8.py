"""A model's weights with the large products in fp8: for passes bound by compute, not for those bound by reading
weights.
"""

from dataclasses import replace

import torch
from torch import Tensor

from stoop_worker.engine.config import check_float8
from stoop_worker.errors import ConfigError
from stoop_worker.kernels.fp8 import FixedScale, Fp8Linear
from stoop_worker.models.blocks.layers import MLP, AnyLinear, LayerNorm, Linear
from stoop_worker.models.moondream.weights import Attention, MoE, TextBlock, VisionBlock, Weights

__all__ = ["in_fp8"]

_MULTIPLE = 16  # cuBLAS requires it of both sizes of a matrix


def in_fp8(weights: Weights) -> Weights:
    """Return weights whose vision and text blocks have fp8 linears, except blocks with experts.

    All else is shared with `weights`. Most products have one scale for all rows and one for the weight, as the scale of
    what follows a norm is known before. In the others each output channel and each row has its own scale.
    Raises `ConfigError` where the device or the model's sizes do not allow it.
    """
    _check(weights)
    vision, text = weights.vision, weights.text
    return replace(
        weights,
        vision=replace(
            vision,
            blocks=tuple(map(_image_block, vision.blocks)),
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
    return replace(block, attn=_attention(block.attn, block.ln), mlp=_mlp_after_norm(block.mlp, block.ln))


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


def _image_block(block: VisionBlock) -> VisionBlock:
    attention = _attention(block.attn, block.ln1)
    # what heads attend to lies within the values of the keys, which are the last third of qkv
    qkv, proj = _plain(block.attn.qkv), _plain(block.attn.proj)
    values = slice(-len(qkv.bias) // 3, None)
    rows = FixedScale.after_norm(qkv.weight[values], qkv.bias[values], _pair(block.ln1))
    proj8 = Fp8Linear.of_one_scale(proj.weight, proj.bias, rows=rows)
    return replace(block, attn=replace(attention, proj=proj8), mlp=_mlp_after_norm(block.mlp, block.ln2))


def _attention(attention: Attention, norm: LayerNorm) -> Attention:
    qkv = _plain(attention.qkv)
    rows = FixedScale.of_norm(*_pair(norm))
    return replace(attention, qkv=Fp8Linear.of_one_scale(qkv.weight, qkv.bias, rows=rows), proj=_linear(attention.proj))


def _mlp_after_norm(mlp: MLP, norm: LayerNorm) -> MLP:
    """Quantise an MLP that reads a norm; its GELU is part of the first product."""
    fc1, fc2, pair = _plain(mlp.fc1), _plain(mlp.fc2), _pair(norm)
    rows, gelu = FixedScale.of_norm(*pair), FixedScale.after_norm(fc1.weight, fc1.bias, pair)
    return MLP(
        Fp8Linear.of_one_scale(fc1.weight, fc1.bias, rows=rows, gelu=gelu),
        Fp8Linear.of_one_scale(fc2.weight, fc2.bias),
    )


def _mlp(mlp: MLP) -> MLP:
    return MLP(_linear(mlp.fc1), _linear(mlp.fc2))


def _linear(linear: AnyLinear) -> Fp8Linear:
    plain = _plain(linear)
    return Fp8Linear.of(plain.weight, plain.bias)


def _pair(norm: LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight, norm.bias


def _plain(linear: AnyLinear) -> Linear:
    assert isinstance(linear, Linear)
    return linear
