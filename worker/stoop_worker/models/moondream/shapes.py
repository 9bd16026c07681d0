"""The name and shape of every tensor of a checkpoint."""

from collections.abc import Mapping

import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.models.moondream.config import ModelConfig
from stoop_worker.models.moondream.config_parts import RegionConfig, TextConfig, VisionConfig

__all__ = ["Shapes", "check_experts", "check_shapes", "is_scale", "tensor_shapes"]

Shapes = dict[str, tuple[int, ...]]

_SCALES = ".moe_quant."


def is_scale(name: str) -> bool:
    """Return whether a tensor scales float8 weights, and so must stay as exact as it is stored."""
    return _SCALES in name


def check_shapes(found: Mapping[str, tuple[int, ...]], config: ModelConfig) -> None:
    """Raise `CheckpointError` unless names and shapes are exactly those of the config.

    The experts' scales may be there or not, but not in part.
    """
    expected = tensor_shapes(config, scaled_experts=any(map(is_scale, found)))
    for name, shape in expected.items():
        if name not in found:
            raise CheckpointError(f"tensor {name} {shape} is missing")
        if found[name] != shape:
            raise CheckpointError(f"tensor {name}: the config expects {shape}, the checkpoint has {found[name]}")
    unknown = sorted(set(found) - set(expected))
    if unknown:
        raise CheckpointError(f"tensors the config does not know: {', '.join(unknown[:5])} ({len(unknown)} in all)")


def check_experts(tensors: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` unless exactly the float8 weights have scales, and only experts are in float8."""
    scaled = {
        name.replace("moe_quant.up_scale", "mlp.fc1.weight").replace("moe_quant.down_scale", "mlp.fc2.weight")
        for name in tensors
        if is_scale(name)
    }
    for name, tensor in tensors.items():
        if tensor.dtype is torch.float8_e4m3fn and name not in scaled:
            raise CheckpointError(f"tensor {name} is in float8 and has no scale")
        if tensor.dtype is not torch.float8_e4m3fn and name in scaled:
            raise CheckpointError(f"tensor {name} has a scale and is {tensor.dtype}, not float8_e4m3fn")


def tensor_shapes(config: ModelConfig, *, scaled_experts: bool = False) -> Shapes:
    """Return the name and shape of every tensor of the model, with the scales of float8 experts if asked for."""
    text = config.text
    shapes = _vision(config.vision)
    shapes |= {"text.wte": (text.vocab_size, text.dim)}
    shapes |= _norm("text.post_ln", text.dim) | _linear("text.lm_head", text.vocab_size, text.dim)
    for layer in range(text.n_layers):
        shapes |= _text_block(layer, text, scaled_experts=scaled_experts)
    return shapes | _region(config.region)


def _vision(vision: VisionConfig) -> Shapes:
    shapes: Shapes = {"vision.pos_emb": (1, vision.patches, vision.enc_dim)}
    for i in range(vision.enc_n_layers):
        block = f"vision.blocks.{i}"
        shapes |= _norm(f"{block}.ln1", vision.enc_dim) | _norm(f"{block}.ln2", vision.enc_dim)
        shapes |= _attention(f"{block}.attn", vision.enc_dim)
        shapes |= _mlp(f"{block}.mlp", vision.enc_dim, vision.enc_ff_dim, vision.enc_dim)
    shapes |= _linear("vision.patch_emb", vision.enc_dim, vision.patch_dim) | _norm("vision.post_ln", vision.enc_dim)
    return shapes | _mlp("vision.proj_mlp", 2 * vision.enc_dim, vision.proj_inner_dim, vision.proj_out_dim)


def _text_block(layer: int, text: TextConfig, *, scaled_experts: bool) -> Shapes:
    block = f"text.blocks.{layer}"
    shapes = _norm(f"{block}.ln", text.dim) | _attention(f"{block}.attn", text.dim)
    if text.tau is not None:
        tau = f"{block}.attn.tau"
        wide = (text.n_heads, 3 * text.dim)
        shapes |= {f"{tau}.wq": wide, f"{tau}.wv": wide, f"{tau}.alpha": (text.n_heads,)}
    if text.moe is None or layer < text.moe.start_layer:
        return shapes | _mlp(f"{block}.mlp", text.dim, text.ff_dim, text.dim)
    experts, inner = text.moe.num_experts, text.moe.expert_inner_dim
    shapes |= _linear(f"{block}.mlp.router", experts, text.dim)
    shapes[f"{block}.mlp.fc1.weight"] = (experts, 2 * inner, text.dim)
    shapes[f"{block}.mlp.fc2.weight"] = (experts, text.dim, inner)
    if scaled_experts:
        shapes[f"{block}{_SCALES}up_scale"] = (experts, 2 * inner)
        shapes[f"{block}{_SCALES}down_scale"] = (experts, text.dim)
    return shapes


def _region(region: RegionConfig) -> Shapes:
    shapes: Shapes = {} if region.inner_dim is not None else _norm("region.ln", region.dim)
    for kind, inputs, features, out in (
        ("coord", 1, region.coord_feat_dim, region.coord_out_dim),
        ("size", 2, region.size_feat_dim, region.size_out_dim),
    ):
        shapes[f"region.{kind}_features"] = (inputs, features // 2)
        shapes |= _linear(f"region.{kind}_encoder", region.dim, features)
        decoder = f"region.{kind}_decoder"
        if region.inner_dim is None:
            shapes |= _linear(decoder, out, region.dim)
        else:
            shapes |= _mlp(decoder, region.dim, region.inner_dim, out)
    return shapes


def _linear(name: str, out_dim: int, in_dim: int) -> Shapes:
    return {f"{name}.weight": (out_dim, in_dim), f"{name}.bias": (out_dim,)}


def _norm(name: str, dim: int) -> Shapes:
    return {f"{name}.weight": (dim,), f"{name}.bias": (dim,)}


def _attention(name: str, dim: int) -> Shapes:
    return _linear(f"{name}.qkv", 3 * dim, dim) | _linear(f"{name}.proj", dim, dim)


def _mlp(name: str, in_dim: int, inner_dim: int, out_dim: int) -> Shapes:
    return _linear(f"{name}.fc1", inner_dim, in_dim) | _linear(f"{name}.fc2", out_dim, inner_dim)
