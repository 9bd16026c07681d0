"""Pictures for tests: encoded in any format, damaged, or lying about their size."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow

__all__ = ["encode", "gradient", "huge_png"]


def gradient(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return RGB pixels (height, width, 3) in which neighbours, and channels, always differ."""
    rows, cols = np.mgrid[0:height, 0:width]
    return np.stack((rows * 7 + cols, rows + cols * 5, rows * 3 + cols * 11), axis=-1).astype(np.uint8)


def encode(picture: npt.NDArray[Any] | Pillow.Image, image_format: str, **options: Any) -> bytes:
    """Encode pixels or a Pillow image."""
    image = picture if isinstance(picture, Pillow.Image) else Pillow.fromarray(picture)
    encoded = io.BytesIO()
    image.save(encoded, image_format, **options)
    return encoded.getvalue()


def huge_png(height: int, width: int) -> bytes:
    """Return a valid PNG of a few bytes that claims to have height x width RGB pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
