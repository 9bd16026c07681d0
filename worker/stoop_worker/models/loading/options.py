"""The options for loading a model."""

from dataclasses import dataclass

import torch

__all__ = ["LoadOptions"]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The device of the weights, and the dtype of all float weights except those stored in float8.

    `fp8_linears` computes the large products in float8, if the family supports it.
    """

    device: torch.device
    dtype: torch.dtype
    fp8_linears: bool = False
