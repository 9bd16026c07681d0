"""Random layers of a pre-norm decoder in bfloat16 or block-wise float8, for tests of the kernels that run them."""

from typing import NamedTuple

import torch
from torch import Tensor

from stoop_worker.kernels.block_fp8 import BlockFp8, Weight
from stoop_worker.kernels.rotate_write import HeadNorms
from stoop_worker.models.decoder.weights import Block

__all__ = ["DecoderSizes", "randn", "random_block"]

_SIDE = 128


class DecoderSizes(NamedTuple):
    """The sizes of a layer; `normed` layers have norms of the heads of q and k."""

    dim: int
    inner: int
    heads: int
    key_heads: int
    head_dim: int
    normed: bool
    float8: bool = False


def randn(*shape: int, scale: float = 1.0, device: str = "cpu") -> Tensor:
    """Return normally distributed values in bfloat16."""
    return (scale * torch.randn(*shape, device=device)).bfloat16()


def random_block(sizes: DecoderSizes, *, epsilon: float, device: str = "cpu") -> Block:
    """Return a layer whose products keep the size of their inputs; `epsilon` is that of the norms of heads."""

    def linear(out: int, width: int) -> Weight:
        if sizes.float8:
            scales = (0.5 + torch.rand(-(-out // _SIDE), width // _SIDE, device=device)) * width**-0.5
            return BlockFp8(randn(out, width, device=device).to(torch.float8_e4m3fn), scales, _SIDE)
        return randn(out, width, scale=width**-0.5, device=device)

    def norm(width: int) -> Tensor:
        return 1 + randn(width, scale=0.1, device=device)

    joined = sizes.heads * sizes.head_dim
    return Block(
        norm=norm(sizes.dim),
        qkv=linear(joined + 2 * sizes.key_heads * sizes.head_dim, sizes.dim),
        out=linear(sizes.dim, joined),
        head_norms=HeadNorms(norm(sizes.head_dim), norm(sizes.head_dim), epsilon) if sizes.normed else None,
        mlp_norm=norm(sizes.dim),
        gate_up=linear(2 * sizes.inner, sizes.dim),
        down=linear(sizes.dim, sizes.inner),
    )
