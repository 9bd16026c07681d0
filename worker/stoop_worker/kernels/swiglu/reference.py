"""The gated activation of an MLP. T rows, F columns of the second product's input, N = 2 F.

Shazeer, "GLU Variants Improve Transformer", 2020.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["swiglu"]


def swiglu(gate_up_TN: Tensor) -> Tensor:
    """Return out_TF: silu(gate) * up, where a row holds its F gates, then its F ups.

    It is computed in float32, or in float64 for float64 rows, and rounded once.
    """
    precise_TN = gate_up_TN.to(torch.promote_types(gate_up_TN.dtype, torch.float32))
    gate_TF, up_TF = precise_TN.chunk(2, dim=-1)
    return (functional.silu(gate_TF) * up_TF).to(gate_up_TN.dtype)
