"""Hostile images, built from small harmless ones."""

import io
import struct
import zlib
from typing import Any

from PIL import Image

__all__ = [
    "bmp_of_size",
    "encoded",
    "gif_of_size",
    "jpeg_of_size",
    "png",
    "png_of_size",
    "png_with_chunk",
    "tiff",
    "webp_of_size",
]

_IHDR = 16  # where a PNG's width stands


def encoded(kind: str, mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: Any) -> bytes:
    """Encode a grey picture."""
    file = io.BytesIO()
    Image.new(mode, size, 128 if len(mode) == 1 or mode.startswith("I") else None).save(file, kind, **options)
    return file.getvalue()


def png() -> bytes:
    return encoded("PNG")


def png_of_size(width: int, height: int) -> bytes:
    """Return a PNG that declares this size."""
    head = b"IHDR" + struct.pack(">II", width, height) + png()[_IHDR + 8 : _IHDR + 13]
    return png()[: _IHDR - 4] + head + struct.pack(">I", zlib.crc32(head)) + png()[_IHDR + 17 :]


def png_with_chunk(kind: bytes, content: bytes) -> bytes:
    """Return a PNG with one more chunk behind its head."""
    at = _IHDR + 17
    chunk = struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return png()[:at] + chunk + png()[at:]


def jpeg_of_size(width: int, height: int) -> bytes:
    image = encoded("JPEG")
    at = image.index(b"\xff\xc0") + 5
    return image[:at] + struct.pack(">HH", height, width) + image[at + 4 :]


def gif_of_size(width: int, height: int) -> bytes:
    image = encoded("GIF", "P")
    return image[:6] + struct.pack("<HH", width, height) + image[10:]


def bmp_of_size(width: int, height: int) -> bytes:
    image = encoded("BMP")
    return image[:18] + struct.pack("<ii", width, height) + image[26:]


def webp_of_size(width: int, height: int) -> bytes:
    """Return a WEBP whose canvas declares this size."""
    sides = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + sides + encoded("WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def tiff(width: int, height: int, *, strip: int = 8, following: int = 0) -> bytes:
    """Return a grey TIFF that declares its pixels at `strip`, and its next directory at `following`."""
    tags = [(256, width), (257, height), (258, 8), (259, 1), (262, 1), (273, strip), (277, 1), (278, height)]
    tags.append((279, width * height & 0xFFFFFFFF))
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    pixels = bytes(64)
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + directory + struct.pack("<I", following)
