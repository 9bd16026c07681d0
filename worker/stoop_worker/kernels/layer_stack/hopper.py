"""The kernels of `pre_norm.cu` and `parallel.cu`, for GPUs of compute capability 9.0. Letters as in the package."""

import ctypes
from contextlib import suppress
from functools import cache
from importlib.resources import files
from math import e, log2

import torch
from torch import Tensor

from stoop_worker.kernels.hopper import CudaKernel, Unusable, defined, is_hopper, is_usable, try_to_compile
from stoop_worker.kernels.layer_stack.parallel import ParallelLayers
from stoop_worker.kernels.layer_stack.pre_norm import PreNormLayers
from stoop_worker.kernels.layer_stack.sizes import BESIDE_HEADS, THREADS, Sizes
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import Places

__all__ = ["PARTS", "LayerStack", "kernel_of", "source"]

_NAME = "layer_stack"
_SECONDS = 10
PARTS = "instructions", "ring", "program", "product", "attend"
"""The files before a kernel's own; only the first needs a GPU."""


class _Step(ctypes.Structure):
    """`Step` in `ring.cu`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "y", "qkv", "attended", "middle", "inner", "out")),
        *((name, ctypes.c_void_p) for name in ("parts", "counters", "layers", "pool")),
        ("layer_bytes", ctypes.c_uint64),
        ("values_offset", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("table", "context", "position", "slot", "rotations")),
        ("epsilon", ctypes.c_float),
        ("head_epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("count", ctypes.c_int),
    ]


class LayerStack:
    """Layers whose decode step of one row is one launch. Calls on one device must not overlap: they share memory."""

    def __init__(self, layers: PreNormLayers | ParallelLayers) -> None:
        self._layers = layers
        self._records = torch.tensor(layers.records(), dtype=torch.int64).to(layers.device)

    def takes(self, x_BC: Tensor, places: Places, pool: Tensor, layout: PagedLayout) -> bool:
        """Return whether the kernel computes this step."""
        if len(x_BC) != 1 or not is_hopper(x_BC.device) or not is_usable(_NAME):
            return False
        plain = layout.planned is None and places.axis_F is None and places.heat is None
        return plain and _is_stored_well(pool, x_BC) and self._sizes(places, pool, layout).fits()

    def run(self, x_1C: Tensor, places: Places, pool: Tensor, layout: PagedLayout) -> Tensor:
        """Return the row after the last layer, and store its keys and values; raises `Unusable`."""
        sizes, x_1C = self._sizes(places, pool, layout), x_1C.contiguous()
        kernel = _compiled(sizes, x_1C.device)
        y_1C = torch.empty_like(x_1C)
        values: list[Tensor | int] = [
            x_1C,
            y_1C,
            *_shared(sizes, x_1C.device),
            self._records,
            pool,
            pool.stride(0) * pool.element_size(),
            pool.stride(1) * pool.element_size(),
            layout.page_table_BP,
            layout.context_lens_B,
            places.positions,
            places.slots_T,
            places.table_SF2,
        ]
        step = _Step(
            *(each.data_ptr() if isinstance(each, Tensor) else each for each in values),
            self._layers.epsilon,
            self._layers.head_epsilon,
            log2(e) * sizes.head_dim**-0.5,
            sizes.layers,
        )
        # launched plainly: the warps that copy read the page table at once
        kernel.launch((sizes.programs, 1, 1), THREADS, sizes.shared_bytes, (step,))
        return y_1C

    def run_if_taken(self, x_BC: Tensor, places: Places, pool: Tensor, layout: PagedLayout) -> Tensor | None:
        """Return the same row; None if the kernel does not take the step, or does not compile."""
        if self.takes(x_BC, places, pool, layout):
            with suppress(Unusable):
                return self.run(x_BC, places, pool, layout)
        return None

    def _sizes(self, places: Places, pool: Tensor, layout: PagedLayout) -> Sizes:
        return self._layers.sizes(pool, places.table_SF2.shape[1], layout.page_size)


def source(sizes: Sizes) -> str:
    """Return the kernel's source for these sizes."""
    numbers = {
        "DIM": sizes.dim,
        "INNER": sizes.inner,
        "HEADS": sizes.heads,
        "KEY_HEADS": sizes.key_heads,
        "HEAD_DIM": sizes.head_dim,
        "FREQUENCIES": sizes.frequencies,
        "NORMS": sizes.normed,
        "FLOAT8": sizes.float8,
        "PAGE": sizes.page,
        "PROGRAMS": sizes.programs,
        "SPLITS": sizes.splits,
        "FIELDS": sizes.fields,
        "CHUNK": sizes.chunk,
        "STAGES": sizes.slots,
        "UNDER_WAY": sizes.under_way,
        "TEAM": sizes.team,
        "BESIDE_HEADS": BESIDE_HEADS,
        "SECONDS": _SECONDS,
    }
    folder = files("stoop_worker.kernels.layer_stack")
    parts = "\n".join(folder.joinpath(f"{part}.cu").read_text() for part in PARTS)
    return defined(f"layer_stack/{kernel_of(sizes)}.cu", numbers, torch.bfloat16, products=parts)


def kernel_of(sizes: Sizes) -> str:
    """Return the name of the file with the kernel for these sizes."""
    return "parallel" if sizes.parallel else "pre_norm"


def _is_stored_well(pool: Tensor, x_BC: Tensor) -> bool:
    return pool.dtype is x_BC.dtype is torch.bfloat16 and pool[0].is_contiguous()


@cache
def _shared(sizes: Sizes, device: torch.device) -> list[Tensor]:
    """Return what programs share, from launch to launch: rows of words, words of two for attention, and counters."""
    rows = [sizes.made, sizes.joined, sizes.dim, sizes.inner, sizes.dim]
    parts = 2 * sizes.heads * sizes.splits * (sizes.head_dim + 2)
    zeros = torch.zeros(sum(rows) + parts + 2, dtype=torch.int32, device=device)
    return list(torch.split(zeros, [*rows, parts, 2]))


@cache
def _compiled(sizes: Sizes, device: torch.device) -> CudaKernel:
    return try_to_compile(source(sizes), _NAME, device, shared_bytes=sizes.shared_bytes)
