"""A BMP's compression: Pillow reads run-length codes in Python, a code or a pixel at a time."""

import struct

from stoop_worker.errors import ImageTooLarge

__all__ = ["check_bmp"]

_MOST_RUN_LENGTH = 4_000_000
_RUN_LENGTH = (1, 2)


def check_bmp(encoded: bytes) -> None:
    """Raise `ImageTooLarge` if a run-length BMP's pixels and bytes together would take Pillow long."""
    if len(encoded) < 34 or encoded[14] == 12:  # 12: a head of the oldest kind, which has no compression
        return
    width, height = struct.unpack_from("<ii", encoded, 18)
    (compression,) = struct.unpack_from("<I", encoded, 30)
    if compression in _RUN_LENGTH and abs(width * height) + len(encoded) > _MOST_RUN_LENGTH:
        raise ImageTooLarge(
            f"the run-length encoded BMP has {abs(width * height)} pixels in {len(encoded)} bytes: "
            f"at most {_MOST_RUN_LENGTH} together; save it as PNG"
        )
