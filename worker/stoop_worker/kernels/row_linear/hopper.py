"""The kernel of `product.cu`, for GPUs of compute capability 9.0. Letters as in `reference`."""

import ctypes
from dataclasses import dataclass
from functools import cache

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
    try_to_compile,
)
from stoop_worker.kernels.row_linear.reference import RowNorm

__all__ = ["Shape", "row_linear", "shape_for", "takes"]

_NAME = "row_product"
_VECTOR = 512  # bytes that a warp multiplies at once
_VECTORS = 2
_WARPS = range(8, 13)
_SHARED_BYTES = 113 * 1024  # of half a multiprocessor, so that a program of the next kernel has room beside this one's
_MOST_SHARED_BYTES = 226 * 1024
_FIXED_BYTES = 2048  # barriers and sums
_LEAST_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a program: its warps, the slots of a warp's ring, and a slot's vectors of 512 bytes for each row."""

    warps: int
    slots: int
    vectors: int = 2


def takes(x_BC: Tensor, weight_NC: Weight, norm: RowNorm | None, added_to_BN: Tensor | None, *, gated: bool) -> bool:
    """Return whether the kernel computes this product of one row."""
    values = values_of(weight_NC)
    others = [each for each in (None if norm is None else norm.weight_C, added_to_BN) if each is not None]
    if isinstance(weight_NC, Tensor):
        stored, whole = weight_NC.dtype is x_BC.dtype, True
    else:
        outputs = weight_NC.shape[0] // 2 if gated else weight_NC.shape[0]
        stored, whole = True, weight_NC.side % 32 == 0 and outputs % weight_NC.side == 0
    return (
        x_BC.shape[0] == 1
        and x_BC.dtype in HALVES
        and stored
        and whole
        and weight_NC.shape[0] % 2 == 0
        and values.stride(1) == 1
        and values.stride(0) * values.element_size() % 16 == 0
        and weight_NC.shape[1] * values.element_size() % _VECTOR == 0
        and all(each.dtype is x_BC.dtype and each.is_contiguous() for each in others)
        and all(each.data_ptr() % 16 == 0 for each in (x_BC, values, *others))
        and is_hopper(x_BC.device)
        and is_usable(_NAME)
    )


def row_linear(
    x_1C: Tensor,
    weight_NC: Weight,
    *,
    norm: RowNorm | None = None,
    added_to_BN: Tensor | None = None,
    gated: bool = False,
    shape: Shape | None = None,
) -> Tensor:
    """Compute `reference.row_linear` for a product that the kernel `takes`; raises `Unusable` if it cannot be used."""
    x_1C, values = x_1C.contiguous(), values_of(weight_NC)
    made, width = weight_NC.shape
    out = made // 2 if gated else made
    scales, side = (values, 0) if isinstance(weight_NC, Tensor) else (weight_NC.scales.contiguous(), weight_NC.side)
    programs = multiprocessors(x_1C.device)
    pairs = -(-(out if gated else out // 2) // programs)
    row_bytes = _row_bytes(width, wide=norm is not None)
    fixed = row_bytes + _scale_bytes(pairs, width, side, gated=gated) + _FIXED_BYTES
    shape = shape or shape_for(pairs, fixed, width * values.element_size())
    steps = norm is not None, gated, added_to_BN is not None
    kernel = _compiled(shape, (width, side), steps, (x_1C.dtype, values.dtype), x_1C.device)
    y_1N = x_1C.new_empty(1, out)
    kernel.launch(
        (programs, 1, 1),
        32 * shape.warps,
        fixed - _FIXED_BYTES + 2 * _VECTOR * shape.vectors * shape.slots * shape.warps,
        (
            x_1C,
            x_1C if norm is None else norm.weight_C,
            values,
            scales,
            x_1C if added_to_BN is None else added_to_BN,
            y_1N,
            ctypes.c_uint64(values.stride(0) * values.element_size()),
            ctypes.c_float(0.0 if norm is None else norm.epsilon),
            ctypes.c_int(out),
        ),
        early=True,
    )
    return y_1N


def shape_for(pairs: int, fixed_bytes: int, weight_bytes: int) -> Shape:
    """Choose the shape for a program's `pairs` of rows of `weight_bytes` each.

    `fixed_bytes` are those of shared memory that are not the rings'.
    """
    warps = min(_WARPS, key=lambda count: (-(-pairs // count) * count - pairs, count))
    room = _SHARED_BYTES - fixed_bytes
    vectors = 1 if 2 * pairs * weight_bytes <= room else _VECTORS  # smaller slots waste less of rings that hold it all
    return Shape(warps, max(_LEAST_SLOTS, room // (2 * _VECTOR * vectors * warps)), vectors)


def _row_bytes(width: int, *, wide: bool) -> int:
    """Return the bytes of the row in shared memory, in float32 if it is wide."""
    return width * (4 if wide else 2)


def _scale_bytes(pairs: int, width: int, side: int, *, gated: bool) -> int:
    """Return the bytes of the scales of a program's rows."""
    if not side:
        return 0
    rows = pairs if gated else 2 * pairs
    return 4 * -(-width // side) * ((rows - 1) // side + 2) * (2 if gated else 1)


@cache
def _compiled(
    shape: Shape,
    sizes: tuple[int, int],
    steps: tuple[bool, bool, bool],
    dtypes: tuple[torch.dtype, torch.dtype],
    device: torch.device,
) -> CudaKernel:
    width, side = sizes
    norm, gated, add = steps
    dtype, stored = dtypes
    numbers = {
        "COLUMNS": width,
        "VALUE_BYTES": stored.itemsize,
        "WARPS": shape.warps,
        "SLOTS": shape.slots,
        "VECTORS": shape.vectors,
        "BFLOAT": dtype is torch.bfloat16,
        "NORM": norm,
        "GATED": gated,
        "ADD": add,
        "SIDE": side,
    }
    text = defined("row_linear/product.cu", numbers, dtype)
    return try_to_compile(text, _NAME, device, shared_bytes=_MOST_SHARED_BYTES)
