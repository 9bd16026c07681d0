"""The picture that golden values are measured on."""

import numpy as np

from stoop_worker.images import Image

__all__ = ["golden_image"]


def golden_image(width: int, height: int) -> Image:
    """Return a ramp to the right in red, a ramp downwards in green, and squares of eight pixels in blue."""
    x, y = np.arange(width)[None, :], np.arange(height)[:, None]
    pixels = np.empty((height, width, 3), dtype=np.uint8)
    pixels[..., 0] = x * 255 // (width - 1)
    pixels[..., 1] = y * 255 // (height - 1)
    pixels[..., 2] = (x // 8 + y // 8) % 2 * 200 + 20
    return Image.of(pixels)
