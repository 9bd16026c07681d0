"""JPEGs to pixels on the host, by libjpeg-turbo."""

import numpy as np
import numpy.typing as npt
import simplejpeg
import torch
from torch import Tensor

__all__ = ["decode"]

_GREY = 128


def decode(encoded: npt.NDArray[np.uint8], height: int, width: int) -> Tensor:
    """Decode a JPEG (N,) to (H, W, 3) uint8; a damaged one as far as it goes, and one that cannot be read is grey."""
    try:
        pixels = simplejpeg.decode_jpeg(encoded, "RGB", strict=False)
    except ValueError:
        pixels = None
    if pixels is None or pixels.shape != (height, width, 3):
        return torch.full((height, width, 3), _GREY, dtype=torch.uint8)
    return torch.from_numpy(pixels)
