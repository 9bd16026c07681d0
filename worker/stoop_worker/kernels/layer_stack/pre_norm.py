"""Pre-norm layers with grouped heads and a gated MLP, as `pre_norm.cu` reads them. Letters as in the package."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight, values_of
from stoop_worker.kernels.hopper import multiprocessors
from stoop_worker.kernels.layer_stack.sizes import Sizes
from stoop_worker.kernels.rotate_write import HeadNorms

__all__ = ["Layer", "PreNormLayers"]

_SIDE = 128


class Layer(Protocol):
    """One layer; `qkv` and `gate_up` are merged by rows."""

    @property
    def norm(self) -> Tensor:
        """The weight of the norm before attention (C,)."""

    @property
    def qkv(self) -> Weight:
        """The heads of q, then of k, then of v."""

    @property
    def out(self) -> Weight:
        """The product behind attention."""

    @property
    def head_norms(self) -> HeadNorms | None:
        """The norms of the heads of q and k, if the model has them."""

    @property
    def mlp_norm(self) -> Tensor:
        """The weight of the norm before the MLP (C,)."""

    @property
    def gate_up(self) -> Weight:
        """The gates, then the ups."""

    @property
    def down(self) -> Weight:
        """The MLP's second product."""


@dataclass(frozen=True, slots=True)
class PreNormLayers:
    """All layers of a decoder; `epsilon` is that of the norms of rows."""

    layers: tuple[Layer, ...]
    epsilon: float

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.layers[0].norm.device

    @property
    def head_epsilon(self) -> float:
        """That of the norms of heads."""
        norms = self.layers[0].head_norms
        return 0.0 if norms is None else norms.epsilon

    def sizes(self, pool: Tensor, frequencies: int, page: int) -> Sizes:
        """Return the sizes for a pool (layers, 2, pages, page size, key heads, head dim)."""
        layer = self.layers[0]
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
            layers=len(self.layers),
        )

    def records(self) -> list[list[int]]:
        """Return each layer's fields as the kernel reads them: addresses."""
        return [_record(layer) for layer in self.layers]

    def are_stored_well(self) -> bool:
        """Return whether the kernel reads weights stored like these: bfloat16, or float8 with float32 scales."""
        first, layers = self.layers[0], self.layers
        float8, normed = isinstance(first.qkv, BlockFp8), first.head_norms is not None
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


def _record(layer: Layer) -> list[int]:
    weights = layer.qkv, layer.out, layer.gate_up, layer.down
    scales = [weight.scales if isinstance(weight, BlockFp8) else None for weight in weights]
    heads = (None, None) if layer.head_norms is None else (layer.head_norms.q_D, layer.head_norms.k_D)
    fields = *map(values_of, weights), *scales, layer.norm, layer.mlp_norm, *heads
    return [0 if field is None else field.data_ptr() for field in fields]
