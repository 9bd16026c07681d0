"""Copies whole pages of the KV pool, in all layers. B copies."""

import torch
from torch import Tensor

__all__ = ["copy_pages"]


def copy_pages(pages: Tensor, sources_B: Tensor, targets_B: Tensor) -> None:
    """Copy page `sources_B[b]` to page `targets_B[b]` in each layer, for the keys and the values, unless it is -1."""
    wanted_B = sources_B >= 0
    # as bytes, because not every dtype can be indexed
    flat = pages.view(torch.uint8)
    flat[:, :, targets_B[wanted_B].long()] = flat[:, :, sources_B[wanted_B].long()]
