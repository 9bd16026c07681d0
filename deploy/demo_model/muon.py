"""The optimizers: Muon for matrices, AdamW for the rest. They need few launches, which dominate a small model's step.

Muon: Keller Jordan et al., 2024; the scale that matches AdamW's steps: Liu et al., "Muon is Scalable for LLM Training".
"""

from collections.abc import Mapping
from math import sqrt

import torch
from torch import Tensor

__all__ = ["Muon"]

_STEPS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon:
    """Momentum whose matrices are made orthogonal; matrices of one shape are computed together."""

    def __init__(self, parameters: Mapping[str, Tensor], *, momentum: float = 0.95, decay: float = 0.02) -> None:
        self.momentum, self.decay = momentum, decay
        self.groups: dict[tuple[int, int], list[Tensor]] = {}
        for name, parameter in sorted(parameters.items()):
            # queries, keys and values are three matrices
            for part in parameter.detach().chunk(3) if name.endswith("qkv.weight") else (parameter.detach(),):
                self.groups.setdefault((part.shape[0], part.shape[1]), []).append(part)
        self.names = sorted(parameters)
        self.parameters = parameters
        self.momenta = {shape: torch.zeros_like(torch.stack(parts)) for shape, parts in self.groups.items()}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Take one step along the parameters' gradients."""
        gradients: dict[tuple[int, int], list[Tensor]] = {shape: [] for shape in self.groups}
        for name in self.names:
            gradient = self.parameters[name].grad
            assert gradient is not None
            for part in gradient.chunk(3) if name.endswith("qkv.weight") else (gradient,):
                gradients[part.shape[0], part.shape[1]].append(part)
        for shape, parts in self.groups.items():
            gradient, momentum = torch.stack(gradients[shape]), self.momenta[shape]
            momentum.lerp_(gradient, 1 - self.momentum)
            update = _orthogonal(gradient.lerp(momentum, self.momentum)) * (0.2 * sqrt(max(shape)))
            torch._foreach_mul_(parts, 1 - rate * self.decay)
            torch._foreach_add_(parts, list(update.to(parts[0].dtype).unbind(0)), alpha=-rate)


def _orthogonal(matrices_BOI: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1 (Newton and Schulz's iteration)."""
    x: Tensor = matrices_BOI.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.transpose(-2, -1) if tall else x
