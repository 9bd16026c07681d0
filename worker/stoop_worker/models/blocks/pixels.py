"""Sends the pixels of images to the device that encodes them."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.images import Jpeg
from stoop_worker.kernels import jpeg

__all__ = ["send_pixels"]


def send_pixels(several: Sequence[npt.NDArray[np.uint8] | Jpeg], device: torch.device) -> list[Tensor]:
    """Copy uint8 arrays to the device, and decode JPEGs there; only work queued there afterwards waits for that."""
    if device.type != "cuda":
        return [_sent(pixels, device) for pixels in several]
    # on a stream of their own, so that the copies do not hold up work already queued
    here, aside = torch.cuda.current_stream(device), _copies(device)
    with torch.cuda.stream(aside):
        sent = [_sent(pixels, device) for pixels in several]
    here.wait_stream(aside)
    for tensor in sent:
        tensor.record_stream(here)
    return sent


def _sent(pixels: npt.NDArray[np.uint8] | Jpeg, device: torch.device) -> Tensor:
    if isinstance(pixels, Jpeg):
        return jpeg.decode(pixels.encoded, *pixels.decoded_size, device)
    if device.type != "cuda":
        return _on_host(pixels)
    return _on_host(pixels, pinned=True).to(device, non_blocking=True)


@cache
def _copies(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _on_host(pixels: npt.NDArray[np.uint8], *, pinned: bool = False) -> Tensor:
    on_host = torch.empty(pixels.shape, dtype=torch.uint8, pin_memory=pinned)
    # copied by numpy, because torch rejects read-only arrays
    on_host.numpy()[...] = pixels
    return on_host
