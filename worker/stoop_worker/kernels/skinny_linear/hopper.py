"""The kernel of `few.cu`, for GPUs of compute capability 9.0. Letters as in `reference`.

The products raise `Unusable` if the kernel cannot be used.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.hopper import (
    HALVES,
    CudaKernel,
    defined,
    is_hopper,
    is_usable,
    multiprocessors,
    products_of,
    tensor_map,
    try_to_compile,
)

__all__ = ["Shape", "gated_linear", "linear", "split_linear", "takes"]

_NAME = "few_rows"
_TILE, _BLOCK = 64, 128  # of the weight: rows of a warpgroup, and columns of a stage
_MOST_ROWS = 64
_MOST_WARPGROUPS, _MOST_STAGES, _MOST_PARTS = 3, 9, 8
_SHARED_BYTES = 220 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The split of the work: tiles of a program, warpgroups that share a tile, and parts of the weight's columns."""

    tiles: int
    split: int = 1
    parts: int = 1


def takes(x_BC: Tensor, weight_NC: Weight) -> bool:
    """Return whether the kernel computes this product: at least two rows, and sizes that its tiles divide."""
    if not isinstance(weight_NC, BlockFp8):
        return False
    values, (out, width) = weight_NC.values_NC, weight_NC.shape
    return (
        1 < x_BC.shape[0] <= _MOST_ROWS
        and x_BC.dtype in HALVES
        and weight_NC.side == _BLOCK
        and out % _BLOCK == 0
        and width % _BLOCK == 0
        and weight_NC.scales.is_contiguous()
        and values.is_contiguous()
        and x_BC.stride(1) == 1
        and x_BC.stride(0) % 8 == 0
        and x_BC.data_ptr() % 16 == 0
        and values.data_ptr() % 16 == 0
        and is_hopper(x_BC.device)
        and is_usable(_NAME)
    )


def linear(x_BC: Tensor, weight_NC: BlockFp8, *, shape: Shape | None = None) -> Tensor:
    """Return x W^T in x's dtype."""
    y_BN = x_BC.new_empty(x_BC.shape[0], weight_NC.shape[0])
    _launch(x_BC, weight_NC, y_BN, shape or _whole_of(weight_NC.shape[0], x_BC.device), gated=False)
    return y_BN


def gated_linear(x_BC: Tensor, weight_NC: BlockFp8, *, shape: Shape | None = None) -> Tensor:
    """Compute `reference.gated_linear`."""
    y_BF = x_BC.new_empty(x_BC.shape[0], weight_NC.shape[0] // 2)
    _launch(x_BC, weight_NC, y_BF, shape or _whole_of(weight_NC.shape[0], x_BC.device), gated=True)
    return y_BF


def split_linear(x_BK: Tensor, weight_NK: BlockFp8, *, shape: Shape | None = None) -> Tensor:
    """Compute `reference.split_linear`, in several parts."""
    out, width = weight_NK.shape
    shape = shape or _parts_of(out, width, x_BK.device)
    parts_SBN = torch.empty((shape.parts, x_BK.shape[0], out), dtype=torch.float32, device=x_BK.device)
    _launch(x_BK, weight_NK, parts_SBN, shape, gated=False)
    return parts_SBN


def _whole_of(out: int, device: torch.device) -> Shape:
    """Return the split of a product without parts: the fewest tiles in a program that leave no second round."""
    tiles = min(_MOST_WARPGROUPS, -(-out // (_TILE * multiprocessors(device))))
    return Shape(tiles, _MOST_WARPGROUPS // tiles)


def _parts_of(out: int, width: int, device: torch.device) -> Shape:
    groups = -(-out // _TILE)
    return Shape(1, _MOST_WARPGROUPS, max(1, min(_MOST_PARTS, multiprocessors(device) // groups, width // _BLOCK)))


def _launch(x_BK: Tensor, weight_NK: BlockFp8, y: Tensor, shape: Shape, *, gated: bool) -> None:
    values, out, width = weight_NK.values_NC, y.shape[-1], weight_NK.shape[1]
    padded = next(count for count in (16, 32, 64) if count >= x_BK.shape[0])
    steps = gated, y.dtype is x_BK.dtype
    kernel = _compiled(shape, width, padded, steps, x_BK.dtype, x_BK.device)
    rows = tensor_map(x_BK, (padded, _BLOCK // 2), swizzled=True)
    if gated:
        tiles = tensor_map(values.view(2, out, width), (2, 8, _BLOCK), swizzled=True)
    else:
        tiles = tensor_map(values, (_TILE, _BLOCK), swizzled=True)
    kernel.launch(
        (-(-weight_NK.shape[0] // (_TILE * shape.tiles)), shape.parts, 1),
        128 * shape.tiles * shape.split + 32,
        _stages(shape, padded) * _stage_bytes(shape, padded),
        (rows, tiles, weight_NK.scales, y, ctypes.c_int(x_BK.shape[0]), ctypes.c_int(out)),
        early=True,
    )


def _stages(shape: Shape, padded: int) -> int:
    """Return how many stages fit, as a multiple of the warpgroups of a tile.

    So a stage always has the same warpgroup, which awaits its copies one after the other. Another warpgroup could await
    a later copy before the one before it has arrived, and the barrier's one bit would let it pass.
    """
    return min(_MOST_STAGES, _SHARED_BYTES // _stage_bytes(shape, padded)) // shape.split * shape.split


def _stage_bytes(shape: Shape, padded: int) -> int:
    return _BLOCK * (2 * padded + _TILE * shape.tiles)


@cache
def _compiled(
    shape: Shape,
    width: int,
    padded: int,
    steps: tuple[bool, bool],
    dtype: torch.dtype,
    device: torch.device,
) -> CudaKernel:
    gated, whole = steps
    stages = _stages(shape, padded)
    numbers = {
        "BFLOAT": dtype is torch.bfloat16,
        "COLUMNS": width,
        "BATCH": padded,
        "TILES": shape.tiles,
        "SPLIT": shape.split,
        "STAGES": stages,
        "PARTS": shape.parts,
        "GATED": gated,
        "WHOLE": whole,
    }
    text = defined("skinny_linear/few.cu", numbers, dtype, products=products_of(padded, dtype))
    shared_bytes = stages * _stage_bytes(shape, padded)
    return try_to_compile(text, _NAME, device, shared_bytes=shared_bytes)
