"""Block-wise float8 checkpoints: weights of 8 bits, with a scale for each block of 128 x 128.

A quantised `name.weight` (out, in) is float8_e4m3fn, and `name.weight_scale_inv` beside it has one scale for each
block, the last of which may be partial. Despite its name, the scale is multiplied: weight = q * scale. The files of
Qwen3-*-FP8 and Qwen3-VL-*-FP8 are of this form. Their weights are converted to the model's dtype, unless
`LoadOptions.block_fp8` keeps those of the layers as they are.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor

from stoop_worker.errors import CheckpointError
from stoop_worker.kernels.block_fp8 import BlockFp8
from stoop_worker.models.loading.options import LoadOptions

__all__ = [
    "Block",
    "check_exceptions",
    "dense_shapes",
    "dequantised",
    "is_scale",
    "keeps_float8",
    "read_block",
    "read_quantised",
]

Block = tuple[int, int]
"""Rows and columns of a block."""

_LAYERS: Final = "layers."
_SCALE: Final = ".weight_scale_inv"
_EXPONENT_BIAS: Final = 127
_EXCEPTIONS: Final = ("modules_to_not_convert", "ignored_layers")  # two spellings of one list


def read_block(document: Mapping[str, Any]) -> Block | None:
    """Return the size of a block from a config.json; None if the checkpoint is not quantised.

    Raises `CheckpointError` for any other kind of quantisation.
    """
    found = document.get("quantization_config")
    if found is None:
        return None
    kind, size = found.get("quant_method"), found.get("weight_block_size")
    if kind != "fp8" or found.get("fmt", "e4m3") != "e4m3":
        raise CheckpointError(f"config: weights quantised by {kind!r} cannot be read: take a bfloat16 checkpoint")
    if not (isinstance(size, list) and len(size) == 2 and all(isinstance(side, int) and side > 0 for side in size)):
        raise CheckpointError("config: quantization_config.weight_block_size must be two numbers, such as [128, 128]")
    return size[0], size[1]


def check_exceptions(document: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise `CheckpointError` if a tensor with one of these names is the scale of a module that is not quantised
    according to config.json.
    """
    found = document.get("quantization_config") or {}
    listed = [module for spelling in _EXCEPTIONS for module in found.get(spelling) or ()]
    exceptions = {str(module).removeprefix("model.").removeprefix("language_model.") for module in listed}
    for name in filter(is_scale, names):
        parts = name.removesuffix(_SCALE).split(".")
        if not exceptions.isdisjoint(".".join(parts[:length]) for length in range(1, len(parts) + 1)):
            raise CheckpointError(f"config: quantization_config leaves out a module that has the scale {name}")


def is_scale(name: str) -> bool:
    """Return whether a tensor is a scale, which must keep its dtype."""
    return name.endswith(_SCALE)


def dense_shapes(shapes: Mapping[str, tuple[int, ...]], block: Block | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes without those of scales, which it checks; raises `CheckpointError`."""
    for name, shape in shapes.items():
        if not is_scale(name):
            continue
        weight = shapes.get(_weight_of(name))
        if block is None or weight is None or len(weight) != 2:
            raise CheckpointError(f"the checkpoint has the scale {name}, but its config or weight is not quantised")
        expected = tuple(-(-size // side) for size, side in zip(weight, block, strict=True))
        if shape != expected:
            raise CheckpointError(f"tensor {name} has shape {shape}: blocks of {block} make it {expected}")
    return {name: shape for name, shape in shapes.items() if not is_scale(name)}


def keeps_float8(options: LoadOptions, block: Block | None) -> bool:
    """Return whether quantised weights stay in float8: if the options ask for it and the blocks are square."""
    return options.block_fp8 and block is not None and block[0] == block[1] and not block[0] & (block[0] - 1)


def read_quantised(
    tensors: dict[str, Tensor], block: Block | None, options: LoadOptions
) -> tuple[dict[str, Tensor], dict[str, BlockFp8]]:
    """Take the scales and their weights out of the tensors; raises `CheckpointError` for a scale or weight alone.

    Returns the tensors, where a weight that is not kept in float8 is in the options' dtype, and the weights that are.
    """
    kept: dict[str, BlockFp8] = {}
    keep = keeps_float8(options, block)
    for name in [name for name in tensors if is_scale(name)]:
        weight, scale = tensors[_weight_of(name)], tensors.pop(name)
        if weight.dtype is not torch.float8_e4m3fn:
            raise CheckpointError(f"the checkpoint has the scale {name}, but its weight is {weight.dtype}")
        assert block is not None, "the shapes were checked"
        if keep and _LAYERS in name:  # no other part of a model has products for them
            kept[_weight_of(name)] = BlockFp8(tensors.pop(_weight_of(name)), _floats(scale), block[0])
        else:
            tensors[_weight_of(name)] = dequantised(weight, scale, block).to(options.dtype)
    left = [name for name, tensor in tensors.items() if tensor.dtype is torch.float8_e4m3fn]
    if left:
        raise CheckpointError(f"the checkpoint has float8 tensors without a scale: {', '.join(sorted(left)[:8])}")
    return tensors, kept


def dequantised(weight: Tensor, scale: Tensor, block: Block) -> Tensor:
    """Return q * scale in float32; scales are floats, or exponents of 8 bits, which stand for 2^(b - 127)."""
    rows, columns = weight.shape
    spread = _floats(scale).repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
    return weight.float() * spread


def _floats(scale: Tensor) -> Tensor:
    return torch.exp2(scale.float() - _EXPONENT_BIAS) if scale.dtype is torch.uint8 else scale.float()


def _weight_of(scale: str) -> str:
    return scale.removesuffix("_scale_inv")
