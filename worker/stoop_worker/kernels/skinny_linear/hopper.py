"""The kernel of `few.cu`, for GPUs of compute capability 9.0. Letters as in `reference`.

The products raise `Unusable` if the kernel cannot be used.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import Weight, values_of
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
_MOST_WARPGROUPS, _MOST_STAGES, _MOST_PARTS, _MOST_TOGETHER = 3, 9, 8, 4
_SHARED_BYTES = 220 * 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The split of the work: tiles of a program, warpgroups that share a tile, and parts of the weight's columns."""

    tiles: int
    split: int = 1
    parts: int = 1


class _End(NamedTuple):
    """What follows the sums: a bias is added, gates multiply their ups, or a factor the output."""

    bias_N: Tensor | None = None
    gated: bool = False
    factor: float = 1.0


def takes(x_BC: Tensor, weight_NC: Weight) -> bool:
    """Return whether the kernel computes this product.

    It takes at least two rows, sizes that its tiles divide, and as many tiles as all programs hold at once.
    """
    values, (out, width) = values_of(weight_NC), weight_NC.shape
    return (
        x_BC.dim() == 2
        and 1 < len(x_BC) <= _MOST_ROWS
        and x_BC.dtype in HALVES
        and _is_scaled_well(weight_NC, x_BC.dtype)
        and out % _BLOCK == 0
        and width % _BLOCK == 0
        and values.is_contiguous()
        and x_BC.stride(1) == 1
        and x_BC.stride(0) % 8 == 0
        and x_BC.data_ptr() % 16 == 0
        and values.data_ptr() % 16 == 0
        and is_hopper(x_BC.device)
        and is_usable(_NAME)
        and out <= _TILE * _MOST_WARPGROUPS * multiprocessors(x_BC.device)
    )


def _is_scaled_well(weight_NC: Weight, dtype: torch.dtype) -> bool:
    if isinstance(weight_NC, Tensor):
        return weight_NC.dtype is dtype
    return weight_NC.side == _BLOCK and weight_NC.scales.is_contiguous()


def linear(
    x_BC: Tensor,
    weight_NC: Weight,
    bias_N: Tensor | None = None,
    *,
    shape: Shape | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return x W^T + b in `dtype`, by default x's; a bias has x's dtype."""
    shape = shape or _shape_of(weight_NC, _MOST_TOGETHER, x_BC.device)
    y_BN = torch.empty((x_BC.shape[0], weight_NC.shape[0]), dtype=dtype or x_BC.dtype, device=x_BC.device)
    _launch(x_BC, weight_NC, y_BN, shape, _End(bias_N))
    return y_BN


def gated_linear(x_BC: Tensor, weight_NC: Weight, *, shape: Shape | None = None, factor: float = 1.0) -> Tensor:
    """Return `factor` times `reference.gated_linear`, within the range of x's dtype."""
    y_BF = x_BC.new_empty(x_BC.shape[0], weight_NC.shape[0] // 2)
    shape = shape or _shape_of(weight_NC, _MOST_TOGETHER, x_BC.device)
    _launch(x_BC, weight_NC, y_BF, shape, _End(gated=True, factor=factor))
    return y_BF


def split_linear(x_BK: Tensor, weight_NK: Weight, *, shape: Shape | None = None, factor: float = 1.0) -> Tensor:
    """Compute `factor` times `reference.split_linear`, in several parts."""
    shape = shape or _shape_of(weight_NK, _MOST_PARTS, x_BK.device)
    parts_SBN = torch.empty((shape.parts, x_BK.shape[0], weight_NK.shape[0]), dtype=torch.float32, device=x_BK.device)
    _launch(x_BK, weight_NK, parts_SBN, shape, _End(factor=factor))
    return parts_SBN


def _shape_of(weight_NC: Weight, most_parts: int, device: torch.device) -> Shape:
    """Return the split of a product: the fewest tiles in a program that leave no second round.

    If the tiles are too few for the device, several programs share each.
    """
    out, width = weight_NC.shape
    groups, programs = -(-out // _TILE), multiprocessors(device)
    tiles = min(_MOST_WARPGROUPS, -(-groups // programs))
    parts = max(1, min(most_parts, programs // groups, width // _BLOCK))
    # several warpgroups share a tile whose values they convert
    split = 1 if isinstance(weight_NC, Tensor) else _MOST_WARPGROUPS // tiles
    return Shape(tiles, split, parts)


def _launch(x_BK: Tensor, weight_NK: Weight, y: Tensor, shape: Shape, end: _End) -> None:
    values, out, width = values_of(weight_NK), y.shape[-1], weight_NK.shape[1]
    size, dtype = values.element_size(), x_BK.dtype
    padded = next(count for count in (16, 32, 64) if count >= x_BK.shape[0])
    into = None if y.dtype is torch.float32 else y.dtype
    work = _Work(shape, width, padded, dtype, into, size, gated=end.gated, biased=end.bias_N is not None)
    kernel = _compiled(work, x_BK.device)
    rows = tensor_map(x_BK, (padded, _BLOCK // 2), swizzled=True)
    if end.gated:
        sides = values.view(2, out // 8, 8, width).transpose(0, 1)
        tiles = tensor_map(sides, (4, 2, 8, _BLOCK // size), swizzled=True)
    else:
        tiles = tensor_map(values, (_TILE, _BLOCK // size), swizzled=True)
    scales = values if isinstance(weight_NK, Tensor) else weight_NK.scales
    kernel.launch(
        (-(-weight_NK.shape[0] // (_TILE * shape.tiles)), shape.parts, 1),
        128 * shape.tiles * shape.split + 32,
        work.shared_bytes,
        (
            rows,
            tiles,
            scales,
            y,
            values if end.bias_N is None else end.bias_N.contiguous(),
            ctypes.c_int(x_BK.shape[0]),
            ctypes.c_int(out),
            ctypes.c_float(end.factor),
        ),
        early=True,
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """The constants of a kernel: rows of x are `padded`, a value of the weight has `size` bytes.

    `into` is the output's dtype, or None for parts in float32.
    """

    shape: Shape
    width: int
    padded: int
    dtype: torch.dtype
    into: torch.dtype | None
    size: int
    gated: bool
    biased: bool

    @property
    def stages(self) -> int:
        """How many stages fit, as a multiple of the warpgroups of a tile.

        So a stage always has the same warpgroup, which awaits its copies one after the other. Another warpgroup could
        await a later copy before the one before it has arrived, and the barrier's one bit would let it pass.
        """
        return min(_MOST_STAGES, _SHARED_BYTES // self._stage_bytes) // self.shape.split * self.shape.split

    @property
    def shared_bytes(self) -> int:
        """The bytes of all stages."""
        return self.stages * self._stage_bytes

    @property
    def _stage_bytes(self) -> int:
        return _BLOCK * (2 * self.padded + self.size * _TILE * self.shape.tiles)


@cache
def _compiled(work: _Work, device: torch.device) -> CudaKernel:
    shape, dtype = work.shape, work.dtype
    numbers = {
        "BFLOAT": dtype is torch.bfloat16,
        "BFLOAT_OUT": work.into is torch.bfloat16,
        "FLOAT8": work.size == 1,
        "COLUMNS": work.width,
        "BATCH": work.padded,
        "TILES": shape.tiles,
        "SPLIT": shape.split,
        "STAGES": work.stages,
        "PARTS": shape.parts,
        "GATED": work.gated,
        "WHOLE": work.into is not None,
        "BIASED": work.biased,
    }
    products = products_of(work.padded, dtype, in_registers=work.size == 1)
    text = defined("skinny_linear/few.cu", numbers, dtype, products=products)
    return try_to_compile(text, _NAME, device, shared_bytes=work.shared_bytes)
