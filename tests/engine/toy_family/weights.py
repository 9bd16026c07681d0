"""The toy's tensors. Linear weights are (out, in), and there are no biases."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tests.engine.toy_family.sizes import (
    DIM,
    EOS,
    FF_DIM,
    HEAD_DIM,
    HEADS,
    KEY_HEADS,
    LAYERS,
    PATCH,
    VOCABULARY,
)

__all__ = ["Block", "Weights", "toy_weights"]


@dataclass(frozen=True)
class Block:
    """A pre-norm block: attention, then a SwiGLU MLP whose gates lie before its ups."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    embeddings: Tensor
    patches: Tensor
    blocks: tuple[Block, ...]
    norm: Tensor
    head: Tensor


@lru_cache
def toy_weights(dtype: torch.dtype = torch.float64, device: str = "cpu") -> Weights:
    random = torch.Generator().manual_seed(11)

    def normal(*shape: int) -> Tensor:
        return 1.5 * torch.randn(shape, generator=random, dtype=torch.float64) / shape[-1] ** 0.5

    def norm() -> Tensor:
        return (1 + 0.1 * torch.randn(DIM, generator=random, dtype=torch.float64)).to(device, dtype)

    def linear(*shape: int) -> Tensor:
        return normal(*shape).to(device, dtype)

    head = normal(VOCABULARY, DIM)
    head[EOS] *= 4  # a random model ends now and then
    return Weights(
        embeddings=(DIM**0.5 * normal(VOCABULARY, DIM)).to(device, dtype),
        patches=linear(DIM, 3 * PATCH * PATCH),
        blocks=tuple(
            Block(
                norm(),
                linear((HEADS + 2 * KEY_HEADS) * HEAD_DIM, DIM),
                linear(DIM, HEADS * HEAD_DIM),
                norm(),
                linear(2 * FF_DIM, DIM),
                linear(DIM, FF_DIM),
            )
            for _ in range(LAYERS)
        ),
        norm=norm(),
        head=head.to(device, dtype),
    )
