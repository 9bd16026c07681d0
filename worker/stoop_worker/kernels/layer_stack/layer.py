"""A layer as the kernel reads it."""

from typing import Protocol

from torch import Tensor

from stoop_worker.kernels.block_fp8 import Weight
from stoop_worker.kernels.rotate_write import HeadNorms

__all__ = ["Layer"]


class Layer(Protocol):
    """A pre-norm layer with grouped heads and a gated MLP; `qkv` and `gate_up` are merged by rows."""

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
