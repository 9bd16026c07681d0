"""JPEGs to pixels, by the decoder that some GPUs have beside their processors. N bytes, H rows, W columns.

`nvjpeg.py` calls NVIDIA's library; `reference.py` decodes on the host. Their pixels differ by one level at most.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stoop_worker.kernels.jpeg import reference
from stoop_worker.kernels.jpeg.nvjpeg import JpegDecoder, decoder_of

__all__ = ["JpegDecoder", "decode", "decoder_of"]


def decode(encoded: npt.NDArray[np.uint8], height: int, width: int, device: torch.device) -> Tensor:
    """Decode a JPEG (N,) to (H, W, 3) uint8 on the device, without waiting for it; a damaged one as far as it goes.

    One thread at a time may call it.
    """
    if device.type == "cuda":
        pixels_HWC = decoder_of(device).decode(encoded, height, width)
        if pixels_HWC is not None:
            return pixels_HWC
    return reference.decode(encoded, height, width).to(device)
