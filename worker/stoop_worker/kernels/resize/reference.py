"""Pillow's LANCZOS and BICUBIC as two matrix products. H and W rows and columns, C channels."""

import torch
from torch import Tensor

from stoop_worker.kernels.resize.taps import BITS, Filter, columns_first, device_taps

__all__ = ["resize"]


def resize(
    pixels_HWC: Tensor, height: int, width: int, *, by: Filter = Filter.LANCZOS, into_HWC: Tensor | None = None
) -> Tensor:
    """Resize uint8 pixels to (height, width, C) uint8, in the order of passes that Pillow chooses.

    The sums are of integers and exact in float64, so the result is Pillow's. If `into_HWC` is given, it receives the
    result and is returned.
    """
    high, wide, _ = pixels_HWC.shape
    exact_HWC = pixels_HWC.double()
    if columns_first(high, wide, height, width):
        found_HWC = _rows(_columns(exact_HWC, height, by), width, by)
    else:
        found_HWC = _columns(_rows(exact_HWC, width, by), height, by)
    return found_HWC.to(torch.uint8) if into_HWC is None else into_HWC.copy_(found_HWC)


def _rows(pixels_HWC: Tensor, width: int, by: Filter) -> Tensor:
    matrix = _matrix(pixels_HWC.shape[1], width, by, pixels_HWC.device)
    return _rounded(torch.einsum("xw,hwc->hxc", matrix, pixels_HWC))


def _columns(pixels_HWC: Tensor, height: int, by: Filter) -> Tensor:
    matrix = _matrix(pixels_HWC.shape[0], height, by, pixels_HWC.device)
    return _rounded(torch.einsum("yh,hwc->ywc", matrix, pixels_HWC))


def _matrix(size: int, resized: int, by: Filter, device: torch.device) -> Tensor:
    first, weights = device_taps(size, resized, by, device)
    # inputs beyond the last pixel have weight zero: point them at the last one
    inputs = (first + torch.arange(len(weights), device=device)[:, None]).clamp(max=size - 1)
    matrix = torch.zeros((resized, size), dtype=torch.float64, device=device)
    return matrix.scatter_add_(1, inputs.t().long(), weights.t().double())


def _rounded(sums: Tensor) -> Tensor:
    return ((sums + (1 << (BITS - 1))) / (1 << BITS)).floor().clamp(0, 255)
