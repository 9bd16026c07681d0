"""The options for loading a model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["LoadOptions", "OnRead", "ignore_progress"]

OnRead = Callable[[int, int], None]
"""Takes the bytes of weights that have been read, and those of all weight files."""


def ignore_progress(read: int, total: int) -> None:
    """Do nothing: an `OnRead` for loading that nobody watches."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The device of the weights, and the dtype of all float weights except those stored in float8.

    `fp8_linears` computes the large products in float8, if the family supports it. `max_context` is the longest context
    that will be served; a family need not prepare for longer ones. `adapters` is a folder of LoRA adapters.
    `on_read` is called after each tensor of the checkpoint.
    """

    device: torch.device
    dtype: torch.dtype
    fp8_linears: bool = False
    max_context: int = 32_768
    adapters: Path | None = None
    on_read: OnRead = ignore_progress
