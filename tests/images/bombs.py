"""Small files that ask for much work, built from small harmless ones."""

import struct
import zlib
from itertools import pairwise

import numpy as np
from PIL import Image as Pillow

from tests.images.pictures import encode

__all__ = [
    "exif_bomb",
    "gif_of_blocks",
    "gif_of_comments",
    "png_of_chunks",
    "png_with",
    "rle_bmp",
    "same",
    "scan_bomb",
    "segment_bomb",
    "sequential_scan_bomb",
    "tiff",
]


def scan_bomb(side: int, scans: int) -> bytes:
    """Return a grey progressive JPEG whose last scan is there this many times: 12 bytes for each."""
    jpeg = encode(Pillow.new("L", (side, side), 128), "JPEG", progressive=True, quality=90)
    starts = [at for at in range(len(jpeg)) if jpeg.startswith(b"\xff\xda", at)]
    start, end = starts[-1], len(jpeg) - 2
    return jpeg[:start] + jpeg[start:end] * scans + jpeg[end:]


def sequential_scan_bomb(side: int, scans: int, *, apart: bool) -> bytes:
    """Return a sequential JPEG with more scans than it needs, of all components together or of one of three."""
    jpeg = encode(Pillow.new("RGB", (side, side), "red"), "JPEG", subsampling="4:4:4")
    start, end = jpeg.index(b"\xff\xda"), len(jpeg) - 2
    scan = b"\xff\xda\0\x08\1\1\0\0\x3f\0" + jpeg[start + 14 : end] if apart else jpeg[start:end]
    return jpeg[:start] + scan * scans + jpeg[end:]


def segment_bomb(segments: int) -> bytes:
    jpeg = encode(Pillow.new("RGB", (16, 16)), "JPEG")
    return jpeg[:2] + b"\xff\xfe\0\2" * segments + jpeg[2:]


def exif_bomb(fields: int) -> bytes:
    """Return a JPEG with EXIF data in which all fields have the same 60 KB as their value."""
    value = 8 + 2 + 12 * fields + 4
    size = 65_000 - value
    directory = struct.pack("<H", fields) + b"".join(
        struct.pack("<HHII", 1000 + number, 1, size, value) for number in range(fields)
    )
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + directory + bytes(4 + size)
    jpeg = encode(Pillow.new("RGB", (16, 16)), "JPEG")
    head = 2 + 2 + int.from_bytes(jpeg[4:6], "big")  # without JFIF's segment, so that Pillow looks for a resolution
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + jpeg[head:]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with(chunks: bytes, *, at_end: bool = False) -> bytes:
    """Return a PNG with these chunks before or behind its image data."""
    png = encode(Pillow.new("RGB", (30, 20)), "PNG")
    at = len(png) - 12 if at_end else 33
    return png[:at] + chunks + png[at:]


def png_of_chunks(kind: bytes, content: bytes, count: int, *, at_end: bool = False) -> bytes:
    return png_with(chunk(kind, content) * count, at_end=at_end)


def gif_with(blocks: bytes) -> bytes:
    gif = encode(Pillow.new("P", (16, 16), 1), "GIF")
    at = 13 + (3 * (2 << (gif[10] & 7)) if gif[10] & 0x80 else 0)
    return gif[:at] + blocks + gif[at:]


def gif_of_blocks(count: int) -> bytes:
    """Return a GIF with a comment of this many blocks of one byte."""
    return gif_with(b"!\xfe" + b"\1a" * count + b"\0")


def gif_of_comments(count: int) -> bytes:
    return gif_with(b"!\xfe\1a\0" * count)


def rle_bmp(width: int, height: int) -> bytes:
    """Return a run-length BMP in which each row is one pixel and the end of the row."""
    bmp = bytearray(encode(Pillow.new("P", (1, 1)), "BMP")[: 54 + 1024])
    bmp[18:26] = struct.pack("<ii", width, height)
    bmp[30:34] = struct.pack("<I", 1)
    return bytes(bmp) + b"\1\0\0\0" * height + b"\0\1"


def tiff(fields: dict[int, int | bytes], data: bytes = b"", *, more: int = 0) -> bytes:
    """Return a TIFF with these fields: numbers, or arrays of 32 bits; and `more` useless ones, each all of `data`."""
    where = 8 + len(data)
    arrays = b"".join(value for value in fields.values() if isinstance(value, bytes))
    entries = b""
    for tag, value in sorted(fields.items()):
        if isinstance(value, bytes):
            entries += struct.pack("<HHII", tag, 4, len(value) // 4, where)
            where += len(value)
        else:
            entries += struct.pack("<HHII", tag, 4, 1, value)
    for number in range(more):
        entries += struct.pack("<HHII", 40_000 + number, 1, len(data), 8)
    assert all(one < another for one, another in pairwise(sorted(fields)))
    directory = struct.pack("<H", len(fields) + more) + entries + bytes(4)
    return b"II*\0" + struct.pack("<I", where) + data + arrays + directory


def same(value: int, count: int) -> bytes:
    """Return an array of 32 bits in which all numbers are the same."""
    return np.full(count, value, dtype="<u4").tobytes()
