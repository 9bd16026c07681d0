"""The options for loading a model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["AdapterOptions", "LoadOptions", "OnRead", "ignore_progress"]

OnRead = Callable[[int, int], None]
"""Takes the bytes of weights that have been read, and those of all weight files."""


def ignore_progress(read: int, total: int) -> None:
    """Do nothing: an `OnRead` for loading without progress reports."""


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """A folder of LoRA adapters, all of which are read at the start.

    With `resident` an adapter is read when a request names it, and this many are on the device at a time; `rank` is
    then the largest rank of an adapter.
    """

    folder: Path
    resident: int | None = None
    rank: int = 32


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The device of the weights, and the dtype of all float weights except those stored in float8.

    `fp8_linears` computes the large products in float8, if the family supports it. `max_context` is the longest context
    that will be served; a family need not prepare for longer ones. `on_read` is called after each tensor of the
    checkpoint. `block_fp8` keeps block-wise float8 weights as they are stored, instead of converting them to `dtype`.
    """

    device: torch.device
    dtype: torch.dtype
    fp8_linears: bool = False
    max_context: int = 32_768
    adapters: AdapterOptions | None = None
    on_read: OnRead = ignore_progress
    block_fp8: bool = False
