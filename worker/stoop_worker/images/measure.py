"""Reads from an image's header how much memory its pixels will take."""

import io

from PIL import Image as Pillow

from stoop_worker.images.load import ImageLimits

__all__ = ["decoded_bytes"]


def decoded_bytes(encoded: bytes, limits: ImageLimits) -> int:
    """Return the bytes of an image's RGB pixels; 0 if `load` would refuse it."""
    try:
        with Pillow.open(io.BytesIO(encoded), formats=limits.formats) as opened:
            width, height = opened.size
    except Exception:  # on hostile bytes Pillow's readers raise nearly everything; `load` reports the reason
        return 0
    return 3 * width * height if width * height <= limits.max_pixels else 0
