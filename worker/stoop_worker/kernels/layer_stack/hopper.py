"""The kernel of `stack.cu`, for GPUs of compute capability 9.0. Letters as in the package."""

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import e, log2

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, values_of
from stoop_worker.kernels.hopper import CudaKernel, defined, is_hopper, is_usable, multiprocessors, try_to_compile
from stoop_worker.kernels.layer_stack.layer import Layer
from stoop_worker.kernels.layer_stack.sizes import THREADS, Sizes
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import Places

__all__ = ["PARTS", "LayerStack", "are_stored_well", "sizes_of", "source"]

_NAME = "layer_stack"
_SECONDS = 10
PARTS = "instructions", "ring", "product", "attend"
"""The files before `stack.cu`; only the first needs a GPU."""
_SIDE = 128
_UNDER_WAY = 3  # slots that are copied at once
_AHEAD = 96 * 1024


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

    def __init__(self, layers: Sequence[Layer], epsilon: float) -> None:
        self._layers, self._epsilon = tuple(layers), epsilon
        records = torch.tensor([_record(layer) for layer in layers], dtype=torch.int64)
        self._records = records.to(layers[0].norm.device)

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
        norms = self._layers[0].head_norms
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
            self._epsilon,
            0.0 if norms is None else norms.epsilon,
            log2(e) * sizes.head_dim**-0.5,
            sizes.layers,
        )
        # launched plainly: the warp that copies reads the page table at once
        kernel.launch((sizes.programs, 1, 1), THREADS, sizes.shared_bytes, (step,))
        return y_1C

    def _sizes(self, places: Places, pool: Tensor, layout: PagedLayout) -> Sizes:
        frequencies = places.table_SF2.shape[1]
        return sizes_of(self._layers, pool, frequencies, layout.page_size)


def sizes_of(layers: Sequence[Layer], pool: Tensor, frequencies: int, page: int) -> Sizes:
    """Return the sizes of layers over a pool (layers, 2, pages, page size, key heads, head dim)."""
    layer = layers[0]
    key_heads, head_dim = pool.shape[-2:]
    return Sizes(
        dim=layer.norm.shape[0],
        inner=layer.down.shape[1],
        heads=layer.out.shape[1] // head_dim,
        key_heads=key_heads,
        head_dim=head_dim,
        frequencies=frequencies,
        normed=layer.head_norms is not None,
        float8=isinstance(layer.qkv, BlockFp8),
        page=page,
        programs=multiprocessors(pool.device),
        layers=len(layers),
    )


def are_stored_well(layers: Sequence[Layer]) -> bool:
    """Return whether the kernel reads weights that are stored like these: bfloat16, or float8 with float32 scales."""
    float8, normed = isinstance(layers[0].qkv, BlockFp8), layers[0].head_norms is not None
    if any((layer.head_norms is not None) is not normed for layer in layers):
        return False
    weights = [weight for layer in layers for weight in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    if any(isinstance(weight, BlockFp8) is not float8 for weight in weights):
        return False
    blocks = [weight for weight in weights if isinstance(weight, BlockFp8)]
    norms = [norm for layer in layers for norm in (layer.norm, layer.mlp_norm)]
    plain = norms if float8 else [*norms, *map(values_of, weights)]
    stored = [*plain, *(each for block in blocks for each in (block.values_NC, block.scales))]
    return (
        all(each.dtype is torch.bfloat16 for each in plain)
        and all(block.side == _SIDE and block.scales.dtype is torch.float32 for block in blocks)
        and all(each.is_contiguous() and each.data_ptr() % 16 == 0 for each in stored)
    )


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
        "CHUNK": sizes.chunk,
        "STAGES": sizes.slots,
        "UNDER_WAY": _UNDER_WAY,
        "AHEAD": _AHEAD,
        "SECONDS": _SECONDS,
    }
    folder = files("stoop_worker.kernels.layer_stack")
    parts = "\n".join(folder.joinpath(f"{part}.cu").read_text() for part in PARTS)
    return defined("layer_stack/stack.cu", numbers, torch.bfloat16, products=parts)


def _record(layer: Layer) -> list[int]:
    """Return a layer's fields as `stack.cu` reads them: addresses."""
    weights = layer.qkv, layer.out, layer.gate_up, layer.down
    scales = [weight.scales if isinstance(weight, BlockFp8) else None for weight in weights]
    heads = (None, None) if layer.head_norms is None else (layer.head_norms.q_D, layer.head_norms.k_D)
    fields = *map(values_of, weights), *scales, layer.norm, layer.mlp_norm, *heads
    return [0 if field is None else field.data_ptr() for field in fields]


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
