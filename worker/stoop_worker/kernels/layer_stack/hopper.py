"""The kernel of `stack.cu`, for GPUs of compute capability 9.0. Letters as in the package."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import e, log2
from typing import Protocol

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, values_of
from stoop_worker.kernels.hopper import (
    CudaKernel,
    defined,
    is_usable,
    multiprocessors,
    try_to_compile,
)
from stoop_worker.kernels.paged_attention import PagedLayout
from stoop_worker.kernels.rotate_write import HeadNorms, Places

__all__ = ["Layer", "LayerStack", "Sizes", "sizes_of", "source"]

_NAME = "layer_stack"
_THREADS = 288
_TILE, _GAP = 16, 64
_ROWS_BYTES = _TILE * (1024 + _GAP)
_SCALE_BYTES = 256
_WARPS = 8
_FIELDS = 12
_MOST_SPLITS = 16
_A_PROGRAM = 227 * 1024
_SECONDS = 10


class Layer(Protocol):
    """One layer of a pre-norm decoder, as in `models.decoder.weights`."""

    @property
    def norm(self) -> Tensor: ...
    @property
    def qkv(self) -> Weight: ...
    @property
    def out(self) -> Weight: ...
    @property
    def head_norms(self) -> HeadNorms | None: ...
    @property
    def mlp_norm(self) -> Tensor: ...
    @property
    def gate_up(self) -> Weight: ...
    @property
    def down(self) -> Weight: ...


class _Step(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "y", "qkv", "attended", "inner", "parts", "part_sums")),
        *((name, ctypes.c_void_p) for name in ("counters", "layers", "pool")),
        ("layer_bytes", ctypes.c_uint64),
        ("values_offset", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("table", "context", "position", "slot", "rotations")),
        ("epsilon", ctypes.c_float),
        ("head_epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("count", ctypes.c_int),
    ]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that the source is written for."""

    dim: int
    inner: int
    heads: int
    key_heads: int
    head_dim: int
    frequencies: int
    normed: bool
    float8: bool
    page: int
    programs: int
    layers: int

    @property
    def splits(self) -> int:
        """Ranges of positions of a key head."""
        return min(_MOST_SPLITS, self.programs // self.key_heads)

    @property
    def made(self) -> int:
        """Rows of the first product."""
        return (self.heads + 2 * self.key_heads) * self.head_dim

    @property
    def stages(self) -> int:
        """The slots that the ring has room for."""
        return (_A_PROGRAM - self._other_bytes) // self._slot_bytes

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a program."""
        return self.stages * self._slot_bytes + self._other_bytes

    @property
    def _slot_bytes(self) -> int:
        return _ROWS_BYTES + (_SCALE_BYTES if self.float8 else 0)

    @property
    def _other_bytes(self) -> int:
        group = self.heads // self.key_heads
        values = max(2 * self.dim + 32, self.heads * self.head_dim, self.inner)
        row = -(-max(2 * values, 4 * _WARPS * group * self.head_dim) // 128) * 128
        return row + self._summing_bytes + 8 * _FIELDS * self.layers

    @property
    def _summing_bytes(self) -> int:
        """Return at least the bytes of the source's `Shared`."""
        rows = max(2 * self._most_rows(self.inner), self._most_rows(self.made), self._most_rows(self.dim))
        return 4 * _WARPS * rows + 20 * (self.head_dim + 8) + 1024 + 16 * 16

    def _most_rows(self, rows: int) -> int:
        return -(--(-rows // self.programs) // _TILE) * _TILE


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
        "STAGES": sizes.stages,
        "SECONDS": _SECONDS,
    }
    instructions = files("stoop_worker.kernels.layer_stack").joinpath("instructions.cu").read_text()
    return defined("layer_stack/stack.cu", numbers, torch.bfloat16, products=instructions)


@cache
def _compiled(sizes: Sizes, device: torch.device) -> CudaKernel:
    return try_to_compile(source(sizes), _NAME, device, shared_bytes=sizes.shared_bytes)


@cache
def _counters(device: torch.device, key_heads: int) -> Tensor:
    """Return zeros, as each launch finds and leaves them: no two launches of one device may overlap."""
    return torch.zeros(2 + key_heads, dtype=torch.int32, device=device)


class LayerStack:
    """Layers whose decode step of one row is one launch."""

    def __init__(self, layers: Sequence[Layer], epsilon: float) -> None:
        self._layers, self._epsilon = tuple(layers), epsilon
        records = [_record(layer) for layer in layers]
        self._records = torch.tensor(records, dtype=torch.int64).to(layers[0].norm.device)

    def takes(self, x_BC: Tensor, places: Places, pool: Tensor, layout: PagedLayout) -> bool:
        """Return whether the kernel computes this step."""
        return (
            x_BC.shape[0] == 1
            and x_BC.is_contiguous()
            and layout.planned is None
            and places.axis_F is None
            and places.heat is None
            and pool.dtype is x_BC.dtype
            and pool[0].is_contiguous()
            and is_usable(_NAME)
        )

    def run(self, x_1C: Tensor, places: Places, pool: Tensor, layout: PagedLayout) -> Tensor:
        """Return the row after the last layer, and store its keys and values; raises `Unusable`."""
        sizes = sizes_of(self._layers, pool, places, layout.page_size, multiprocessors(x_1C.device))
        kernel = _compiled(sizes, x_1C.device)
        y_1C = torch.empty_like(x_1C)
        joined, ranges = sizes.heads * sizes.head_dim, sizes.heads * sizes.splits
        halves = x_1C.new_empty(sizes.made + joined + sizes.inner)
        qkv, attended, inner = halves.split((sizes.made, joined, sizes.inner))
        sums = torch.empty(ranges * (sizes.head_dim + 2), dtype=torch.float32, device=x_1C.device)
        parts, part_sums = sums.split((ranges * sizes.head_dim, 2 * ranges))
        counters = _counters(x_1C.device, sizes.key_heads)
        norms = self._layers[0].head_norms
        table_BP = layout.page_table_BP
        tensors: list[Tensor | int] = [
            x_1C, y_1C, qkv, attended, inner, parts, part_sums, counters, self._records, pool,
            pool.stride(0) * pool.element_size(), pool.stride(1) * pool.element_size(),
            table_BP, layout.context_lens_B, places.positions, places.slots_T, places.table_SF2,
        ]
        step = _Step(
            *(each.data_ptr() if isinstance(each, Tensor) else each for each in tensors),
            self._epsilon,
            0.0 if norms is None else norms.epsilon,
            log2(e) * sizes.head_dim**-0.5,
            len(self._layers),
        )
        kernel.launch((sizes.programs, 1, 1), _THREADS, sizes.shared_bytes, (step,))
        return y_1C


def sizes_of(layers: Sequence[Layer], pool: Tensor, places: Places, page: int, programs: int) -> Sizes:
    """Return the sizes of layers over a pool (layers, 2, pages, page size, key heads, head dim)."""
    layer = layers[0]
    key_heads, head_dim = pool.shape[-2:]
    return Sizes(
        dim=layer.norm.shape[0],
        inner=layer.down.shape[1],
        heads=layer.out.shape[1] // head_dim,
        key_heads=key_heads,
        head_dim=head_dim,
        frequencies=places.table_SF2.shape[1],
        normed=layer.head_norms is not None,
        float8=isinstance(layer.qkv, BlockFp8),
        page=page,
        programs=programs,
        layers=len(layers),
    )


def _record(layer: Layer) -> list[int]:
    """Return a layer's fields as `stack.cu` reads them: addresses."""
    weights = layer.qkv, layer.out, layer.gate_up, layer.down
    norms = () if layer.head_norms is None else (layer.head_norms.q_D, layer.head_norms.k_D)
    scales = [weight.scales if isinstance(weight, BlockFp8) else None for weight in weights]
    tensors = [*map(values_of, weights), *scales, layer.norm, layer.mlp_norm, *(norms or (None, None))]
    return [0 if each is None else each.data_ptr() for each in tensors]
