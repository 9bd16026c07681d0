"""The kernel of `attend.cu`, for GPUs of compute capability 9.0 and heads of 72 channels. Letters as in `reference`."""

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import e, log2

import torch
from torch import Tensor

from worker.kernels.cuda_source import CudaKernel, compile_kernel, tensor_map

__all__ = ["Shape", "takes", "vision_attention"]

_CHANNELS, _WIDE, _NARROW = 72, 64, 8
_HALVES = {torch.bfloat16: "bf16", torch.float16: "f16"}
_CAPABILITY = (9, 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How the work is cut: keys of a block, 64 query rows for each warpgroup, programs a multiprocessor, stages."""

    keys: int = 64
    warpgroups: int = 2
    programs: int = 2
    stages: int = 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a program: queries, their zeros, keys and values of each stage, and the barriers."""
        row = 2 * _CHANNELS
        return 64 * self.warpgroups * (row + 16) + self.stages * 2 * (self.keys * row + 8) + 8


_SHAPE = Shape()


def takes(qkv_NP3HD: Tensor) -> bool:
    """Say whether the kernel can compute this, and where it is."""
    return (
        qkv_NP3HD.dim() == 5
        and qkv_NP3HD.is_contiguous()
        and qkv_NP3HD.dtype in _HALVES
        and qkv_NP3HD.shape[-1] == _CHANNELS
        and qkv_NP3HD.shape[1] > _SHAPE.keys
        and torch.cuda.get_device_capability(qkv_NP3HD.device) == _CAPABILITY
    )


def vision_attention(qkv_NP3HD: Tensor, *, shape: Shape = _SHAPE) -> Tensor:
    """See the reference."""
    crops, patches, _, heads, channels = qkv_NP3HD.shape
    o_NPHD = qkv_NP3HD.new_empty(crops, patches, heads, channels)
    rows_NHPD = qkv_NP3HD.flatten(2, 3).transpose(1, 2)  # H: the heads' queries, their keys, their values
    wide = tensor_map(rows_NHPD, (1, 1, shape.keys, _WIDE), swizzled=True)
    narrow = tensor_map(rows_NHPD, (1, 1, shape.keys, _NARROW), swizzled=False)
    scale = ctypes.c_float(log2(e) * channels**-0.5)
    kernel = _compiled(shape, patches, heads, qkv_NP3HD.dtype, qkv_NP3HD.device)
    grid = -(-patches // (64 * shape.warpgroups)), heads, crops
    kernel.launch(grid, 128 * shape.warpgroups, (wide, narrow, o_NPHD, scale))
    return o_NPHD


@cache
def _compiled(shape: Shape, patches: int, heads: int, dtype: torch.dtype, device: torch.device) -> CudaKernel:
    with torch.cuda.device(device):
        source = _source(shape, patches, heads, _HALVES[dtype])
        return compile_kernel(source, "attend", architecture="sm_90a", shared_bytes=shape.shared_bytes)


def _source(shape: Shape, patches: int, heads: int, half: str) -> str:
    last = -(-(patches % shape.keys or shape.keys) // 16) * 16
    numbers = {
        "PATCHES": patches,
        "HEADS": heads,
        "KEYS": shape.keys,
        "WARPGROUPS": shape.warpgroups,
        "PROGRAMS": shape.programs,
        "STAGES": shape.stages,
        "SHARED": shape.shared_bytes,
        "HALF": f'"{half}"',
    }
    folder = files("worker.kernels.vision_attention")
    return "\n".join(
        [
            *(f"#define {name} {value}" for name, value in numbers.items()),
            folder.joinpath("hopper.cu").read_text(),
            *(_scores(columns, half) for columns in sorted({shape.keys, last})),
            *(_mix(columns, half) for columns in (_NARROW, _WIDE)),
            folder.joinpath("attend.cu").read_text(),
        ]
    )


def _scores(columns: int, half: str) -> str:
    """Write a product of 64 x 16 queries and `columns` keys, both in shared memory by channel; `add` keeps the sums."""
    count, sums, names = _sums(columns)
    words = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {sums}, %{count}, %{count + 1}, adds"
    return f"""
template <> __device__ __forceinline__ void scores<{columns}>(float* sums, u64 a, u64 b, int add) {{
  asm volatile("{{ .reg .pred adds; setp.ne.b32 adds, %{count + 2}, 0; {words}, 1, 1, 0, 0; }}"
               : {names} : "l"(a), "l"(b), "r"(add));
}}"""


def _mix(columns: int, half: str) -> str:
    """Write a product of 64 x 16 weights in registers and 16 values of `columns` channels, which lie by value."""
    count, sums, names = _sums(columns)
    weights = ", ".join(f"%{count + i}" for i in range(4))
    words = f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{half}.{half} {sums}, {{{weights}}}, %{count + 4}"
    return f"""
template <> __device__ __forceinline__ void mix<{columns}>(float* sums, const u32* a, u64 b) {{
  asm volatile("{words}, 1, 1, 1, 1;"
               : {names} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}}"""


def _sums(columns: int) -> tuple[int, str, str]:
    """Return how many sums a thread has of a product, how they are numbered, and what they are."""
    count = columns // 2
    numbers = ", ".join(f"%{i}" for i in range(count))
    return count, f"{{{numbers}}}", ", ".join(f'"+f"(sums[{i}])' for i in range(count))
