"""The options for loading a model."""

from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["LoadOptions"]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The device of the weights, and the dtype of all float weights except those stored in float8.

    `fp8_linears` computes the large products in float8, if the family supports it. `max_context` is the longest context
    that will be served; a family need not prepare for longer ones. `adapters` is a folder of LoRA adapters.
    """

    device: torch.device
    dtype: torch.dtype
    fp8_linears: bool = False
    max_context: int = 32_768
    adapters: Path | None = None
