"""Layers whose attention and MLP read the same norm, as `parallel.cu` reads them. Letters as in the package."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from stoop_worker.kernels.hopper import multiprocessors
from stoop_worker.kernels.layer_stack.sizes import Sizes

__all__ = ["Affine", "ParallelLayer", "ParallelLayers"]


class Affine(Protocol):
    """A product or a norm."""

    @property
    def weight(self) -> Tensor:
        """Of a product (out, in), of a norm (C,)."""

    @property
    def bias(self) -> Tensor:
        """Added to the result."""


class ParallelLayer(Protocol):
    """One layer, with as many key heads as query heads and a tanh-GELU."""

    @property
    def ln(self) -> Affine:
        """The layer norm of both parts."""

    @property
    def first(self) -> Affine:
        """The rows of the heads of q, k and v, then those of the MLP's first product; rows behind them are not read."""

    @property
    def second(self) -> Affine:
        """The columns of the product behind attention, then those of the MLP's second product."""


@dataclass(frozen=True, slots=True)
class ParallelLayers:
    """All layers of a decoder; `epsilon` is that of their norms."""

    head_epsilon: ClassVar[float] = 0.0

    layers: tuple[ParallelLayer, ...]
    epsilon: float

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.layers[0].ln.weight.device

    def sizes(self, pool: Tensor, frequencies: int, page: int) -> Sizes:
        """Return the sizes for a pool (layers, 2, pages, page size, heads, head dim)."""
        heads, head_dim = pool.shape[-2:]
        dim, joined = self.layers[0].second.weight.shape
        return Sizes(
            dim=dim,
            inner=joined - heads * head_dim,
            heads=heads,
            key_heads=heads,
            head_dim=head_dim,
            frequencies=frequencies,
            normed=False,
            float8=False,
            page=page,
            programs=multiprocessors(pool.device),
            layers=len(self.layers),
            parallel=True,
        )

    def records(self) -> list[list[int]]:
        """Return each layer's fields as the kernel reads them: addresses."""
        return [
            [
                each.data_ptr()
                for each in (
                    layer.first.weight,
                    layer.second.weight,
                    layer.first.bias,
                    layer.second.bias,
                    layer.ln.weight,
                    layer.ln.bias,
                )
            ]
            for layer in self.layers
        ]

    def are_stored_well(self) -> bool:
        """Return whether the kernel reads weights stored like these: bfloat16."""
        parts = [part for layer in self.layers for part in (layer.ln, layer.first, layer.second)]
        return all(
            each.dtype is torch.bfloat16 and each.is_contiguous() and each.data_ptr() % 16 == 0
            for part in parts
            for each in (part.weight, part.bias)
        )
