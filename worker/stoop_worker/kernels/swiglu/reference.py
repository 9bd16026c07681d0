"""The gated activations of an MLP. T rows, F columns of the second product's input, N = 2 F.

Shazeer, "GLU Variants Improve Transformer", 2020.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["geglu", "swiglu"]


def swiglu(gate_up_TN: Tensor) -> Tensor:
    """Return out_TF: silu(gate) * up, where a row holds its F gates, then its F ups.

    It is computed in float32, or in float64 for float64 rows, and rounded once.
    """
    return _gated(gate_up_TN, functional.silu)


def geglu(gate_up_TN: Tensor) -> Tensor:
    """Return out_TF as `swiglu` does, with the tanh approximation of GELU instead of SiLU."""
    return _gated(gate_up_TN, partial(functional.gelu, approximate="tanh"))


def _gated(gate_up_TN: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    precise_TN = gate_up_TN.to(torch.promote_types(gate_up_TN.dtype, torch.float32))
    gate_TF, up_TF = precise_TN.chunk(2, dim=-1)
    return (activation(gate_TF) * up_TF).to(gate_up_TN.dtype)
