"""Reads from an image's header how much memory its pixels will take."""

import io

import simplejpeg
from PIL import Image as Pillow

from stoop_worker.images.load import ImageLimits

__all__ = ["decoded_bytes", "quickly_decoded_bytes"]

_HEADER_BYTES = 1 << 16  # more than a photo has before its frame, unless it contains profiles or previews


def decoded_bytes(encoded: bytes, limits: ImageLimits) -> int:
    """Return the bytes of an image's RGB pixels; 0 if `load` would refuse it."""
    try:
        with Pillow.open(io.BytesIO(encoded), formats=limits.formats) as opened:
            width, height = opened.size
    except Exception:  # on hostile bytes Pillow's readers raise nearly everything; `load` reports the reason
        return 0
    return 3 * width * height if width * height <= limits.max_pixels else 0


def quickly_decoded_bytes(encoded: bytes, limits: ImageLimits) -> int | None:
    """Return what `decoded_bytes` does, within microseconds; None if only that function can know.

    It knows JPEGs, and reads nothing but their beginning.
    """
    if "JPEG" not in limits.formats or not encoded.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(memoryview(encoded)[:_HEADER_BYTES])
    except (ValueError, KeyError):  # it has no name for unusual subsampling
        return None
    return 3 * width * height if width * height <= limits.max_pixels else 0
