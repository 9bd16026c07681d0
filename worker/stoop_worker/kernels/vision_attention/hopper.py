"""The kernel of `attend.cu`, for GPUs of compute capability 9.0 and heads of 72 channels. Letters as in `reference`."""

import ctypes
from functools import cache
from math import e, log2

import torch
from torch import Tensor

from stoop_worker.kernels.hopper import HALVES, CudaKernel, Shape, compile_kernel, is_hopper, source, tensor_map

__all__ = ["takes", "vision_attention"]

_CHANNELS, _WIDE, _NARROW = 72, 64, 8
_SHAPE = Shape()


def takes(qkv_NP3HD: Tensor) -> bool:
    """Return whether the kernel takes this tensor on its device."""
    return (
        qkv_NP3HD.dim() == 5
        and qkv_NP3HD.is_contiguous()
        and qkv_NP3HD.dtype in HALVES
        and qkv_NP3HD.shape[-1] == _CHANNELS
        and qkv_NP3HD.shape[1] > _SHAPE.keys
        and is_hopper(qkv_NP3HD.device)
    )


def vision_attention(qkv_NP3HD: Tensor, *, shape: Shape = _SHAPE, factor: float | None = None) -> Tensor:
    """See the reference; with a `factor`, return that times the output in float8_e4m3fn, which saturates."""
    crops, patches, _, heads, channels = qkv_NP3HD.shape
    dtype = qkv_NP3HD.dtype if factor is None else torch.float8_e4m3fn
    o_NPHD = qkv_NP3HD.new_empty(crops, patches, heads, channels, dtype=dtype)
    rows_NHPD = qkv_NP3HD.flatten(2, 3).transpose(1, 2)  # H: the heads' queries, then keys, then values
    wide = tensor_map(rows_NHPD, (1, 1, shape.keys, _WIDE), swizzled=True)
    narrow = tensor_map(rows_NHPD, (1, 1, shape.keys, _NARROW), swizzled=False)
    scale = ctypes.c_float(log2(e) * channels**-0.5)
    kernel = _compiled(shape, (patches, heads), qkv_NP3HD.dtype, qkv_NP3HD.device, out8=factor is not None)
    grid = -(-patches // shape.rows), heads, crops
    kernel.launch(grid, shape.threads, _shared_bytes(shape), (wide, narrow, o_NPHD, scale, ctypes.c_float(factor or 1)))
    return o_NPHD


@cache
def _compiled(
    shape: Shape, sizes: tuple[int, int], dtype: torch.dtype, device: torch.device, *, out8: bool
) -> CudaKernel:
    patches, heads = sizes
    shared_bytes = _shared_bytes(shape)
    last = -(-(patches % shape.keys or shape.keys) // 16) * 16
    text = source(
        "stoop_worker.kernels.vision_attention",
        shape,
        {"PATCHES": patches, "HEADS": heads, "SHARED": shared_bytes, "OUT8": int(out8)},
        dtype=dtype,
        scored=(shape.keys, last),
        mixed=(_WIDE, _NARROW),
    )
    return compile_kernel(text, "attend", device, architecture="sm_90a", shared_bytes=shared_bytes)


def _shared_bytes(shape: Shape) -> int:
    """Return the bytes of shared memory for queries and their zeros, each stage's keys and values, and barriers."""
    row_bytes = 2 * _CHANNELS
    return shape.rows * (row_bytes + 16) + shape.stages * 2 * (shape.keys * row_bytes + 8) + 8
