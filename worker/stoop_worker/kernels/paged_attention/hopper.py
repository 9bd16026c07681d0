"""The kernel of `attend.cu`, for GPUs of compute capability 9.0, heads of 64 channels and a pool of the queries' dtype.

Letters as in `reference`; P pages.
"""

import ctypes
from functools import cache
from math import e, log2

import torch
from torch import Tensor

from worker.kernels.hopper import HALVES, CudaKernel, Shape, compile_kernel, is_hopper, source, tensor_map
from worker.kernels.paged_attention.layout import PagedLayout, tiles

__all__ = ["prefill", "takes"]

_CHANNELS = 64
_SHAPE = Shape()
_SMALL = Shape(warpgroups=1, programs=3, stages=3)
_FEW_ROWS = 1024
"""Programs of two warpgroups would not fill the device with so few."""
_MOST_PAGES = 4096  # of a sequence: what shared memory has room for
_FEWEST_ROWS = 64
"""Of a sequence, on average: a program's rows would be padding for the most part where there are fewer."""


def takes(q_THD: Tensor, pool: Tensor, layout: PagedLayout) -> bool:
    """Say whether the kernel can compute this, and is made for as many rows."""
    return (
        q_THD.dtype in HALVES
        and pool.dtype is q_THD.dtype
        and q_THD.shape[2] == _CHANNELS
        and q_THD.shape[0] >= _FEWEST_ROWS * layout.context_lens_B.shape[0]
        and layout.page_size in (8, 16, 32, 64)
        and layout.page_table_BP.shape[1] <= _MOST_PAGES
        and is_hopper(q_THD.device)
    )


def prefill(q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, out_TM: Tensor | None = None) -> Tensor:
    """As `prefill` of Triton's kernel; rows of q, of the pool and of `out_TM` begin at multiples of 16 bytes."""
    rows, heads, channels = q_THD.shape
    out = q_THD.new_empty(rows, heads * channels) if out_TM is None else out_TM
    pages, sequences = pool.shape[1], layout.context_lens_B.shape[0]
    table_BP = layout.page_table_BP
    # (1, heads, rows, channels) and (pages of keys and of values, heads, page size, channels)
    queries = tensor_map(q_THD.transpose(0, 1)[None], (1, 1, 64, channels), swizzled=True)
    places = tensor_map(pool.flatten(0, 1).transpose(1, 2), (1, 1, layout.page_size, channels), swizzled=True)
    shape = _SMALL if rows <= _FEW_ROWS else _SHAPE
    kernel = _compiled(shape, layout.page_size, q_THD.dtype, q_THD.device)
    numbers = (sequences, table_BP.stride(0), out.stride(0) * out.element_size(), pages)
    kernel.launch(
        (tiles(rows, sequences, shape.rows), heads, 1),
        shape.threads,
        _fixed_bytes(shape) + 4 * table_BP.shape[1],
        (
            queries,
            places,
            table_BP,
            layout.cu_seqlens_B1,
            layout.context_lens_B,
            layout.prefix_lens_B,
            out,
            *map(ctypes.c_int, numbers),
            ctypes.c_float(log2(e) * channels**-0.5),
        ),
    )
    return out[:, : heads * channels].view(q_THD.shape)


@cache
def _compiled(shape: Shape, page_size: int, dtype: torch.dtype, device: torch.device) -> CudaKernel:
    fixed_bytes = _fixed_bytes(shape)
    text = source(
        "worker.kernels.paged_attention",
        shape,
        {"PAGE": page_size, "SHARED": fixed_bytes},
        dtype=dtype,
        scored=(shape.keys,),
        mixed=(_CHANNELS,),
    )
    return compile_kernel(text, "attend", device, architecture="sm_90a", shared_bytes=fixed_bytes + 4 * _MOST_PAGES)


def _fixed_bytes(shape: Shape) -> int:
    """Return the shared memory of queries, of keys and values of each stage, and of barriers."""
    return 2 * _CHANNELS * (shape.rows + shape.stages * 2 * shape.keys) + 16 * shape.stages + 8
