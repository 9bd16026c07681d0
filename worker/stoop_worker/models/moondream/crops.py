"""Cuts an image's crops on the device that encodes them. H rows, W columns, C channels, N crops."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.images.tiling import CropGeometry, select_tiling
from stoop_worker.kernels.resize import resize

__all__ = ["cut_on_device", "send_pixels"]


def cut_on_device(pixels_HWC: Tensor, geometry: CropGeometry, into_NHWC: Tensor) -> None:
    """Write the crops to encode to uint8 `into_NHWC`, with the same cuts as `stoop_worker.images.cut`.

    The global crop comes first, then the local ones row by row; if the only local crop equals it, just the global one.
    """
    height, width, _ = pixels_HWC.shape
    tiling = select_tiling(height, width, geometry)
    side, window = geometry.crop_size, geometry.window
    resize(pixels_HWC, side, side, into_HWC=into_NHWC[0])
    if tiling.count == 1:
        return
    resized_HWC = resize(pixels_HWC, *tiling.size(geometry))
    local = resized_HWC.unfold(0, side, window).unfold(1, side, window).permute(0, 1, 3, 4, 2)
    into_NHWC[1:].view(local.shape).copy_(local)


def send_pixels(several: Sequence[npt.NDArray[np.uint8]], device: torch.device) -> list[Tensor]:
    """Copy uint8 arrays to the device; only work queued there afterwards waits for the copies."""
    if device.type != "cuda":
        return [_on_host(pixels) for pixels in several]
    # on a stream of their own, so that the copies do not hold up work already queued
    here, aside = torch.cuda.current_stream(device), _copies(device)
    with torch.cuda.stream(aside):
        sent = [_on_host(pixels, pinned=True).to(device, non_blocking=True) for pixels in several]
    here.wait_stream(aside)
    for tensor in sent:
        tensor.record_stream(here)
    return sent


@cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _on_host(pixels: npt.NDArray[np.uint8], *, pinned: bool = False) -> Tensor:
    on_host = torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=pinned)
    # copied by numpy, because torch rejects read-only arrays
    on_host.numpy()[...] = pixels
    return on_host
