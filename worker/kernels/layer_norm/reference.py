"""Layer normalisation. C model dim."""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["layer_norm"]

_EPSILON = 1e-5


def layer_norm(x_C: Tensor, weight_C: Tensor, bias_C: Tensor) -> Tensor:
    """Normalise over the last dim: statistics in at least float32, input and output in the same dtype."""
    return functional.layer_norm(x_C, torch.Size(weight_C.shape), weight_C, bias_C, _EPSILON)
