"""The kernel of `attend.cu`, for compute capability 9.0, heads of 64 channels and a pool of the queries' dtype.

Letters as in `reference`; P pages.
"""

import ctypes
from functools import cache
from math import e, log2

import torch
from torch import Tensor

from stoop_worker.kernels.hopper import HALVES, CudaKernel, Shape, compile_kernel, is_hopper, source, tensor_map
from stoop_worker.kernels.paged_attention.layout import PagedLayout, tiles

__all__ = ["prefill", "takes"]

_CHANNELS = 64
_SHAPE = Shape()
_SMALL = Shape(warpgroups=1, programs=3, stages=3)
_FEW_ROWS = 1024
"""With fewer rows, programs of two warpgroups would not fill the device."""
_MOST_PAGES = 4096  # of a sequence: shared memory has room for no more
_FEWEST_ROWS = 64
"""Of a sequence, on average; with fewer, most rows of a program would be padding."""


def takes(q_THD: Tensor, pool: Tensor, layout: PagedLayout) -> bool:
    """Return whether the kernel can compute this, and is meant for this number of rows."""
    return (
        q_THD.dtype in HALVES
        and pool.dtype is q_THD.dtype
        and q_THD.shape[2] == _CHANNELS
        and q_THD.shape[0] >= _FEWEST_ROWS * layout.context_lens_B.shape[0]
        and layout.page_size in (8, 16, 32, 64)
        and layout.page_table_BP.shape[1] <= _MOST_PAGES
        and is_hopper(q_THD.device)
    )


def prefill(q_THD: Tensor, pool: Tensor, layout: PagedLayout, *, scale: float, out_TM: Tensor | None = None) -> Tensor:
    """Compute the same as Triton's `prefill`; rows of q, the pool and `out_TM` begin at multiples of 16 bytes."""
    rows, heads, channels = q_THD.shape
    out = q_THD.new_empty(rows, heads * channels) if out_TM is None else out_TM
    pages, sequences = pool.shape[1], layout.context_lens_B.shape[0]
    table_BP = layout.page_table_BP
    # (1, heads, rows, channels) and (pages of keys and of values, key heads, page size, channels)
    queries = tensor_map(q_THD.transpose(0, 1)[None], (1, 1, 64, channels), swizzled=True)
    places = tensor_map(pool.flatten(0, 1).transpose(1, 2), (1, 1, layout.page_size, channels), swizzled=True)
    shape = _SMALL if rows <= _FEW_ROWS else _SHAPE
    kernel = _compiled(shape, (layout.page_size, heads // pool.shape[3]), q_THD.dtype, q_THD.device)
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
            ctypes.c_float(log2(e) * scale),
        ),
    )
    return out[:, : heads * channels].view(q_THD.shape)


@cache
def _compiled(shape: Shape, sizes: tuple[int, int], dtype: torch.dtype, device: torch.device) -> CudaKernel:
    fixed_bytes = _fixed_bytes(shape)
    page_size, group = sizes
    text = source(
        "stoop_worker.kernels.paged_attention",
        shape,
        {"PAGE": page_size, "GROUP": group, "SHARED": fixed_bytes},
        dtype=dtype,
        scored=(shape.keys,),
        mixed=(_CHANNELS,),
    )
    return compile_kernel(text, "attend", device, architecture="sm_90a", shared_bytes=fixed_bytes + 4 * _MOST_PAGES)


def _fixed_bytes(shape: Shape) -> int:
    """Return the bytes of shared memory for queries, for each stage's keys and values, and for barriers."""
    return 2 * _CHANNELS * (shape.rows + shape.stages * 2 * shape.keys) + 16 * shape.stages + 8
